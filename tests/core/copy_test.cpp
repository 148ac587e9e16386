// Copies of all sizes around those at which the way of copying changes, at all alignments.
#include "core/copy.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <vector>

namespace tutti {
namespace {

// All ways in which both ends can lie within a vector, and all sizes around where the loop begins and how it may end.
TEST(Copy, EveryByteAndNoOther) {
  constexpr std::size_t kMargin = 64;
  std::vector<std::size_t> sizes = {0, 1, 15, 16, 17, 63, 64, 65, 4097, (3 << 20) + 5};
  for (const std::size_t begins : {256, 1024})
    for (std::size_t bytes = begins - 17; bytes < begins + 146; ++bytes) sizes.push_back(bytes);
  const std::size_t most = sizes[9];
  std::vector<std::byte> in(most + kMargin), out(most + 3 * kMargin);
  std::mt19937_64 random(1);
  for (std::byte& b : in) b = std::byte(random());
  for (const std::size_t bytes : sizes)
    for (std::size_t ways = 0; ways < 256; ways += bytes > 4096 ? 37 : 1) {
      const std::size_t from = ways % 16, to = kMargin + ways / 16;
      std::memset(out.data(), 0xee, bytes + 2 * kMargin);
      copy_bytes(out.data() + to, in.data() + from, bytes);
      ASSERT_EQ(std::memcmp(out.data() + to, in.data() + from, bytes), 0)
          << bytes << " bytes from " << from << " to " << to;
      for (std::size_t i = 0; i < bytes + 2 * kMargin; ++i) {
        if (i == to) i += bytes;
        ASSERT_EQ(out[i], std::byte{0xee}) << bytes << " bytes from " << from << " to " << to << ": " << i;
      }
    }
  copy_bytes(nullptr, nullptr, 0);
}

}  // namespace
}  // namespace tutti
