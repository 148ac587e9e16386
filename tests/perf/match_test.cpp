// From rounds to medians and ratios.
#include "perf/compare/match.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tutti::perf::compare {
namespace {

using testing::HasSubstr;

const Field kField{"shm", "all_reduce", 4};

Times times() {
  return {{"tutti", {{8, {1, 2, 1, 10, 1}}, {64, {4, 4, 4, 4, 4}}}},
          {"fast", {{8, {3, 4, 3, 5, 3}}, {64, {2, 2, 2, 2, 2}}}},
          {"slow", {{8, {9, 9, 9, 9, 9}}, {64, {8, 8, 8, 8, 8}}}},
          {"limit", {{8, {0.5, 0.5, 0.5, 0.5, 0.5}}}}};
}

TEST(Match, ThePeerWithTheLeastMedianIsComparedRoundByRound) {
  const auto points = judge(times(), "tutti", {"fast", "slow"});
  ASSERT_EQ(points.size(), 2u);
  EXPECT_EQ(points[0].best_peer, "fast");
  EXPECT_DOUBLE_EQ(points[0].ratio, 3);        // of 3, 2, 3, 0.5, 3
  EXPECT_DOUBLE_EQ(points[0].least, 2);        // the outermost rounds are left out
  EXPECT_DOUBLE_EQ(points[0].most, 3);
  EXPECT_DOUBLE_EQ(points[1].ratio, 0.5);
  EXPECT_DOUBLE_EQ(points[1].median.at("slow"), 8);
}

TEST(Match, WhoIsNoPeerIsShownButNotCompared) {
  const auto points = judge(times(), "tutti", {"slow"});
  EXPECT_EQ(points[0].best_peer, "slow");
  EXPECT_DOUBLE_EQ(points[0].median.at("limit"), 0.5);
  EXPECT_TRUE(judge(times(), "nobody", {"slow"}).empty());
  EXPECT_TRUE(judge({{"tutti", {{8, {1}}}}}, "tutti", {"slow"})[0].best_peer.empty());
}

TEST(Match, GeometricMeanOfRatios) {
  auto points = judge(times(), "tutti", {"fast", "slow"});
  points[0].ratio = 4;
  points[1].ratio = 1;
  EXPECT_DOUBLE_EQ(geometric_mean(points), 2);
  points[1].ratio = 0;                         // no peer there
  EXPECT_DOUBLE_EQ(geometric_mean(points), 4);
  EXPECT_EQ(geometric_mean({}), 0);
}

TEST(Match, BusBandwidthIsThatOfTheBenchmarks) {
  EXPECT_DOUBLE_EQ(bus_bandwidth(kField, 4000, 2), 2 * 1.5);
  EXPECT_DOUBLE_EQ(bus_bandwidth({"tcp", "all_gather", 4}, 4000, 2), 2 * 0.75);
  EXPECT_DOUBLE_EQ(bus_bandwidth({"tcp", "reduce_scatter", 2}, 4000, 2), 2 * 0.5);
  EXPECT_DOUBLE_EQ(bus_bandwidth({"tcp", "broadcast", 8}, 4000, 2), 2);
  EXPECT_EQ(bus_bandwidth(kField, 4000, 0), 0);
}

TEST(Match, TablesAndLinesNameWhoIsThere) {
  const auto points = judge(times(), "tutti", {"fast", "slow"});
  const std::string table = to_table(kField, points, {"tutti", "fast", "limit"});
  EXPECT_THAT(table, HasSubstr("all_reduce, 4 ranks, shm"));
  EXPECT_THAT(table, HasSubstr("3.00 |   2.00 to 3.00 |"));
  EXPECT_THAT(table, HasSubstr("- |"));        // the limit of 64 bytes
  EXPECT_EQ(csv_head({"tutti", "fast"}),
            "transport,collective,ranks,bytes,tutti_us,fast_us,best_peer,ratio,ratio_low,ratio_high\n");
  EXPECT_THAT(to_csv(kField, points, {"tutti", "fast"}),
              HasSubstr("shm,all_reduce,4,64,4.0000,2.0000,fast,0.5000,0.5000,0.5000\n"));
}

}  // namespace
}  // namespace tutti::perf::compare
