#pragma once
// KeyHash: messages as keys of hash tables.
#include <cstddef>
#include <cstdint>

#include "transport/transport.h"

namespace tutti::transport {

struct KeyHash {
  std::size_t operator()(const MessageKey& key) const {
    std::uint64_t x = (std::uint64_t{key.operation} << 32 | key.communicator) ^ (std::uint64_t{key.message} << 20);
    x *= 0x9E3779B97F4A7C15u;
    return static_cast<std::size_t>(x ^ x >> 29);
  }
};

}  // namespace tutti::transport
