// Which messages are lent.
#include "comm/lending.h"

#include <gtest/gtest.h>

#include "algorithms/generate.h"

namespace tutti::comm {
namespace {

Program program_of(Collective what, const char* algorithm, int rank) {
  algorithms::Request request;
  request.collective = what;
  request.rank_count = 3;
  return compile(request, rank, algorithm, algorithms::find_generator(algorithm)->generate(request, rank));
}

TEST(Lending, IsOfWhatIsPutInItsPlaceAlone) {
  Prices prices;
  prices.lend_from = 32 << 10;
  for (const Collective what : {Collective::all_reduce, Collective::reduce_scatter, Collective::reduce})
    EXPECT_FALSE(lending_of(program_of(what, "direct", 1), {}, prices).includes(1 << 20)) << int(what);
  for (const Collective what : {Collective::all_gather, Collective::all_to_all}) {
    const Lending lending = lending_of(program_of(what, "direct", 1), {}, prices);
    EXPECT_FALSE(lending.includes((32 << 10) - 1));
    EXPECT_TRUE(lending.includes(32 << 10));
    EXPECT_TRUE(lending.includes(std::uint64_t(1) << 40));
  }
}

TEST(Lending, OfARankThatReceivesNothingIsOfAMiddleSize) {
  Prices prices;
  prices.lend_from = 32 << 10;
  const Lending root = lending_of(program_of(Collective::broadcast, "direct", 0), {}, prices);
  EXPECT_FALSE(root.includes(40 << 10));
  EXPECT_TRUE(root.includes(64 << 10));
  EXPECT_FALSE(root.includes(1 << 20));
}

TEST(Lending, IsNoneUnlessMeasuredOrAskedFor) {
  EXPECT_FALSE(lending_of(program_of(Collective::all_gather, "direct", 1), {}, {}).includes(1 << 20));
  EXPECT_FALSE(lending_of_pairs({}, {}).includes(1 << 20));
  Settings settings;
  settings.cma_threshold = 4096;
  EXPECT_TRUE(lending_of(program_of(Collective::all_gather, "direct", 1), settings, {}).includes(4096));
  EXPECT_FALSE(lending_of_pairs(settings, {}).includes(64 << 10));
  EXPECT_TRUE(lending_of_pairs(settings, {}).includes((64 << 10) + 1));
}

}  // namespace
}  // namespace tutti::comm
