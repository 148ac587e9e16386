// Operations on streams in the simulated world: ranks with twins of a GPU, each exchange on one of two streams or on
// host memory as each rank likes; right results in rough worlds, and one verdict for all when a process is killed,
// after which the streams have nothing left.
#include <gtest/gtest.h>

#include "tests/sim/rough_crew.h"
#include "tests/sim/seeds.h"

namespace tutti::sim {
namespace {

CrewOptions with_gpus(std::uint64_t seed) {
  CrewOptions options = rough_crew(seed, 128 << 10);
  options.gpus = true;
  return options;
}

TEST(SimGpu, RandomExchangesOnStreamsAreRight) {
  for (const std::uint64_t seed : seeds(24)) {
    CrewOptions options = with_gpus(seed);
    options.exchanges = 8;
    Crew crew(seed, options);
    ASSERT_TRUE(crew.assemble()) << crew.report();
    crew.run_until_over(seconds{300});
    expect_right(crew);
    ASSERT_FALSE(testing::Test::HasFailure()) << crew.world.replay_line();
  }
}

TEST(SimGpu, AKilledProcessGivesAllRanksOneVerdict) {
  for (const std::uint64_t seed : seeds(10)) {
    CrewOptions options = with_gpus(seed);
    options.exchanges = kForEver;
    Crew crew(seed, options);
    ASSERT_TRUE(crew.assemble()) << crew.report();
    run_into_work(crew);
    const int victim = static_cast<int>(crew.world.dice().below(static_cast<std::uint64_t>(crew.count())));
    const TimePoint since = crew.world.now();
    crew.world.kill(victim);
    EXPECT_TRUE(crew.run_until_over(seconds{10}, victim)) << crew.report();
    expect_one_verdict(crew, since, seconds{2}, victim);
    ASSERT_FALSE(testing::Test::HasFailure()) << crew.world.replay_line();
  }
}

}  // namespace
}  // namespace tutti::sim
