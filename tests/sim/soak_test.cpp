// Everything at once, in simulation: random operations of random sizes, with checks and encryption or without, over
// links that are reset, flip bits or fall silent, until a rank is killed, after which those who are left go on, take in
// a newcomer in its place, and owe each other nothing in the end. CI runs a slice; SOAK_SEEDS=20000 runs so many.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>

#include "tests/sim/rough_crew.h"
#include "tests/sim/seeds.h"

namespace tutti::sim {
namespace {

constexpr int kCarryOn = 5, kRegrow = 5;

std::uint64_t slice() {
  const char* wanted = std::getenv("SOAK_SEEDS");
  return wanted ? std::strtoull(wanted, nullptr, 10) : 40;
}

void harm_a_link(Crew& crew) {
  Dice& dice = crew.world.dice();
  const auto pairs = connected_pairs(crew);
  if (pairs.empty()) return;
  const auto [a, b] = pairs[dice.below(pairs.size())];
  std::vector<std::uint64_t> wires;                            // over networks: inside a host nothing breaks
  for (const WireInfo& wire : crew.world.wires()) {
    const auto of_pair = crew.data_wires(a, b);
    if (wire.address[1].find('@') == std::string::npos && std::count(of_pair.begin(), of_pair.end(), wire.number))
      wires.push_back(wire.number);
  }
  if (wires.empty()) return;
  const std::uint64_t wire = wires[dice.below(wires.size())];
  const int end = static_cast<int>(dice.below(2));
  switch (dice.below(4)) {
    case 0: return crew.world.reset(wire);
    case 1: return crew.world.reset_after(wire, end, 1 + dice.below(20'000));
    case 2: return crew.world.flip_after(wire, end, dice.below(5000), std::byte(1 << dice.below(8)));
    default: return crew.world.stall(wire, true);
  }
}

TEST(SimSoak, NothingIsLostAndTheLivingGoOn) {
  int carried_on = 0, regrown = 0;
  for (const std::uint64_t seed : seeds(slice())) {
    CrewOptions options = rough_crew(seed, 128 << 10);
    Dice draw{seed ^ 0x736f616b};
    options.settings.check = draw.chance(0.3);
    options.settings.encrypt = draw.chance(0.3);
    options.exchanges = kForEver;
    options.carry_on = kCarryOn;
    options.regrow = kRegrow;
    Crew crew(seed, options);
    ASSERT_TRUE(crew.assemble()) << crew.report();
    Dice& dice = crew.world.dice();
    const Nanoseconds apart = milliseconds{dice.chance(0.5) ? 2 : 50};
    for (std::uint64_t i = 0, harms = dice.below(8); i < harms; ++i) {
      crew.world.run_for(dice.up_to(apart));
      harm_a_link(crew);
    }
    ASSERT_TRUE(crew.all([](const CrewRank& rank) { return !rank.verdict && rank.wrong == 0; })) << crew.report();
    const auto progress = [&] {
      return crew.rank(0).completed;
    };  // also over links that fell silent, when they are mended
    const int before = progress();
    EXPECT_TRUE(crew.world.run_until([&] { return progress() >= before + 3; }, seconds{60}))
        << "nothing moves any more; " << crew.report();

    const int victim = static_cast<int>(dice.below(static_cast<std::uint64_t>(crew.count())));
    crew.world.kill(victim);
    const auto lives = [&](const CrewRank& rank) { return rank.rank != victim; };
    const auto over = [&] {
      return crew.all([&](const CrewRank& rank) {
        return !lives(rank) || (rank.shrunk && (!rank.shrunk->ok() || rank.second_verdict || rank.carried == kCarryOn));
      });
    };
    EXPECT_TRUE(crew.world.run_until(over, seconds{60})) << crew.report();
    for (int r = 0; r < crew.count(); ++r) {
      const CrewRank& rank = crew.rank(r);
      if (!lives(rank)) continue;
      EXPECT_TRUE(rank.verdict && rank.verdict->code() == Code::peer_lost && rank.verdict->culprit() == victim)
          << "rank " << r;
      EXPECT_TRUE(rank.shrunk && rank.shrunk->ok()) << "rank " << r;
      EXPECT_EQ(rank.wrong, 0) << "rank " << r;
      EXPECT_EQ(rank.spoiled, 0) << "rank " << r;
      carried_on += rank.carried == kCarryOn;
    }
    const auto went_on = [](const CrewRank& rank) { return rank.carried == kCarryOn; };
    if (!testing::Test::HasFailure() && crew.all(went_on, victim)) {
      const CrewRank& newcomer = crew.replace(victim);
      const auto whole = [&] {
        return newcomer.regrown == kRegrow &&
               crew.all([](const CrewRank& rank) { return rank.regrown == kRegrow; }, victim);
      };
      EXPECT_TRUE(crew.world.run_until(whole, seconds{60}));
      EXPECT_TRUE(newcomer.wrong == 0 && crew.all([](const CrewRank& rank) { return rank.wrong == 0; }, victim));
      EXPECT_FALSE(newcomer.second_verdict) << newcomer.second_verdict->to_string();
      EXPECT_EQ(crew.debts(victim), "");
      ++regrown;
    }
    ASSERT_FALSE(testing::Test::HasFailure()) << "victim " << victim << ", " << crew.report();
  }
  if (!whole_range()) return;
  EXPECT_GT(carried_on, int(slice())) << "the test must reach what it is about";
  EXPECT_GT(regrown, int(slice()) * 3 / 4) << "the test must reach what it is about";
}

}  // namespace
}  // namespace tutti::sim
