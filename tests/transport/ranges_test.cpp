// Ranges: what is noted of a GPU's memory holds for that allocation alone, whatever lies in its place later.
#include "transport/ranges.h"

#include <gtest/gtest.h>

#include <array>

namespace tutti::transport {
namespace {

struct Gpu {
  ~Gpu() {
    for (const Range& range : ranges_of_gpu(this)) EXPECT_TRUE(drop_range(range.data));
  }
  bool note(const std::byte* data, std::size_t bytes, std::uint64_t allocation) const { return note_gpu_range(data, bytes, this, allocation); }
};

std::array<std::byte, 4096> memory;
std::byte* const at = memory.data();
std::uint64_t token() { return range_of(at, 1)->token; }

TEST(Ranges, AnAllocationIsNotedOnce) {
  const Gpu gpu;
  EXPECT_FALSE(of_gpu(at, 1));
  EXPECT_TRUE(gpu.note(at, 1000, 7));
  const std::uint64_t first = token();
  EXPECT_FALSE(gpu.note(at, 1000, 7));
  EXPECT_EQ(token(), first);
  EXPECT_TRUE(of_gpu(at, 1000));
  EXPECT_FALSE(of_gpu(at, 1001));
}

// Of another number, another size, another GPU: nothing of what was known of the first holds.
TEST(Ranges, AnotherAllocationInItsPlaceIsAnotherRange) {
  const Gpu gpu, other;
  (void)gpu.note(at, 1000, 7);
  std::uint64_t last = token();
  const auto is_another = [&] {
    const bool another = token() != last && !lives(last) && lives(token());
    last = token();
    return another;
  };
  EXPECT_TRUE(gpu.note(at, 1000, 8) && is_another());
  EXPECT_TRUE(gpu.note(at, 2000, 8) && is_another());
  EXPECT_TRUE(other.note(at, 2000, 8) && is_another());
  EXPECT_EQ(range_of(at, 1)->owner, &other);
  EXPECT_TRUE(ranges_of_gpu(&gpu).empty());
}

TEST(Ranges, AnAllocationEndsThoseThatItOverlaps) {
  const Gpu gpu;
  (void)gpu.note(at, 1000, 1);
  (void)gpu.note(at + 1000, 1000, 2);
  (void)gpu.note(at + 2000, 1000, 3);
  EXPECT_TRUE(gpu.note(at + 500, 1000, 4));
  ASSERT_EQ(ranges_of_gpu(&gpu).size(), 2u);
  EXPECT_FALSE(of_gpu(at, 1));
  EXPECT_EQ(range_of(at + 500, 1000)->allocation, 4u);
  EXPECT_EQ(range_of(at + 2000, 1000)->allocation, 3u);
}

// Of all that was noted and that the bytes touch; what users have registered stays.
TEST(Ranges, BytesBecomeTheHosts) {
  const Gpu gpu;
  (void)gpu.note(at, 1000, 1);
  (void)gpu.note(at + 1000, 1000, 2);
  ASSERT_TRUE(add_range(at + 2000, 100).ok());
  (void)gpu.note(at + 3000, 1000, 3);
  const std::uint64_t dropped = dropped_ranges();
  forget_gpu_ranges(at + 500, 0);
  EXPECT_EQ(dropped_ranges(), dropped);
  forget_gpu_ranges(at + 999, 2001);
  EXPECT_FALSE(range_of(at, 1) || range_of(at + 1000, 1));
  EXPECT_EQ(dropped_ranges(), dropped + 2);
  EXPECT_TRUE(of_gpu(at + 3000, 1000));
  EXPECT_TRUE(drop_range(at + 2000));
}

}  // namespace
}  // namespace tutti::transport
