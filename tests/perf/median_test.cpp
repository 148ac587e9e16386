// The median that all benchmarks tell.
#include "perf/driver/median.h"

#include <gtest/gtest.h>

namespace tutti::perf {
namespace {

TEST(Median, OfOddEvenAndNothing) {
  EXPECT_EQ(median({3, 1, 2}), 2);
  EXPECT_EQ(median({4, 1, 2, 3}), 2.5);
  EXPECT_EQ(median({}), 0);
}

}  // namespace
}  // namespace tutti::perf
