#pragma once
// CRC32C, which finds what wires and memories flip. It is no protection against a person: that is what keys are for.
#include <cstddef>
#include <cstdint>

namespace tutti {

// CRC32C (Castagnoli, reflected 0x82F63B78) of the bytes, continuing from `crc` (0 to begin). Uses the processor's
// instruction where it has one (chosen at run time), tables otherwise; same value either way.
std::uint32_t crc32c(const void* data, std::size_t bytes, std::uint32_t crc = 0);

// The same by tables alone, whatever the processor: what crc32c() is tested against.
std::uint32_t crc32c_by_tables(const void* data, std::size_t bytes, std::uint32_t crc = 0);

}  // namespace tutti
