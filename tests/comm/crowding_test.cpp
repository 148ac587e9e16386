// Ranks per core, from what ranks say of themselves.
#include "comm/crowding.h"

#include <gtest/gtest.h>

#include "comm/placement.h"

namespace tutti::comm {
namespace {

struct Says {
  int cores;
  const char* cpus;
  std::uint64_t host = 7;
};

std::vector<RankInfo> ranks_that(std::initializer_list<Says> all) {
  std::vector<RankInfo> ranks;
  for (const Says& says : all) {
    RankInfo info;
    info.rank = int(ranks.size());
    info.cores = says.cores;
    info.cpus = says.cpus;
    info.host_identity = says.host;
    ranks.push_back(info);
  }
  return ranks;
}

double crowding(std::initializer_list<Says> all) { return crowding_of_hosts(ranks_that(all)).at(7); }

TEST(Crowding, RanksThatMayUseAllCores) {
  EXPECT_EQ(crowding({{4, "0-3"}, {4, "0-3"}}), 0.5);
  EXPECT_EQ(crowding({{2, "0-1"}, {2, "0-1"}, {2, "0-1"}}), 1.5);
}

// As mpirun and srun tie them: nobody waits for a core, though each rank has but one.
TEST(Crowding, RanksTiedToCoresOfTheirOwn) {
  EXPECT_EQ(crowding({{1, "0"}, {1, "1"}}), 1);
  EXPECT_EQ(crowding({{2, "0-1"}, {2, "2,3"}, {2, "4-5"}}), 0.5);
}

TEST(Crowding, RanksTiedToTheSameCore) { EXPECT_EQ(crowding({{1, "5"}, {1, "5"}}), 2); }

TEST(Crowding, AQuotaOfTimeCounts) {
  EXPECT_EQ(crowding({{2, "0-63"}, {2, "0-63"}, {2, "0-63"}, {2, "0-63"}}), 2);
  EXPECT_EQ(crowding({{8, "0-7"}, {8, "0-7"}}), 0.25);
}

TEST(Crowding, RanksThatDoNotSayWhichCores) {
  EXPECT_EQ(crowding({{2, ""}, {2, ""}}), 1);
  EXPECT_EQ(crowding({{1, "nonsense"}, {1, ""}}), 2);
}

TEST(Crowding, EachHostByItself) {
  const auto of = crowding_of_hosts(ranks_that({{1, "0", 1}, {1, "1", 1}, {1, "0", 2}, {1, "0", 2}}));
  EXPECT_EQ(of.at(1), 1);
  EXPECT_EQ(of.at(2), 2);
}

TEST(Crowding, ThePlannerPricesTiedRanksAsThoseWithRoom) {
  const auto tied = place_ranks(ranks_that({{1, "0"}, {1, "1"}}), {}), shared = place_ranks(ranks_that({{1, "0"}, {1, "0"}}), {});
  EXPECT_EQ(tied.prices.borders.back().alpha, kRankMemory.alpha);
  EXPECT_EQ(shared.prices.borders.back().alpha, kCrowdedMemory.alpha);
}

}  // namespace
}  // namespace tutti::comm
