#pragma once
// CRC32C, which finds what wires and memories flip. It is no protection against a person: that is what keys are for.
#include <cstddef>
#include <cstdint>
#include <span>

namespace tutti {

// CRC32C (Castagnoli, reflected 0x82F63B78) of the bytes, continuing from `crc` (0 to begin). Computed the fastest way
// that the processor has (chosen at run time), tables where it has no other; same value whichever.
std::uint32_t crc32c(const void* data, std::size_t bytes, std::uint32_t crc = 0);

// Each way by itself: for tests, which hold one against the other, and for measurements.
struct CrcWay {
  const char* name;
  std::uint32_t (*function)(const void* data, std::size_t bytes, std::uint32_t crc);
};
std::span<const CrcWay> crc32c_ways();  // those that this processor can run: tables first, crc32c()'s last

}  // namespace tutti
