// Links that break, fall silent or flip bits while the ranks at both ends live: nothing is lost, and nobody is told.
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/sim/rough_crew.h"
#include "tests/sim/seeds.h"

namespace tutti::sim {
namespace {

// Over TCP alone; the hosts are as rough as ever.
CrewOptions tcp_crew(std::uint64_t seed, std::size_t most_bytes) {
  CrewOptions options = rough_crew(seed, most_bytes);
  options.settings.transport = "tcp";
  options.settings.sockets = static_cast<int>(seed % 3);
  options.exchanges = 12;
  return options;
}

// Until all are over, or five minutes have gone by; at random times, up to `times`, `meddle` gets the wires of some
// pair that has a connection then. Returns how often it did.
using Meddle = std::function<void(const std::vector<std::uint64_t>& wires)>;
int run_with(Crew& crew, Nanoseconds apart, int times, const Meddle& meddle) {
  const auto over = [&] { return crew.all([](const CrewRank& rank) { return rank.over(); }); };
  int done = 0;
  for (int i = 0; i < times; ++i) {
    if (crew.world.run_until(over, crew.world.dice().up_to(apart))) return done;
    const auto pairs = connected_pairs(crew);
    if (pairs.empty()) continue;
    const auto [a, b] = pairs[crew.world.dice().below(pairs.size())];
    meddle(crew.data_wires(a, b));
    ++done;
  }
  crew.run_until_over(seconds{300});
  return done;
}

TEST(SimLinks, ConnectionsThatAreResetAreMadeAgainAndNothingIsLost) {
  int resets = 0;
  for (const std::uint64_t seed : seeds(150)) {
    Crew crew(seed, tcp_crew(seed, 256 << 10));
    ASSERT_TRUE(crew.assemble()) << crew.report();
    Dice& dice = crew.world.dice();
    resets += run_with(crew, milliseconds{dice.chance(0.5) ? 1 : 30}, 10, [&](const auto& wires) {
      for (const std::uint64_t wire : wires)
        crew.world.reset_after(wire, static_cast<int>(dice.below(2)), 1 + dice.below(20'000));
    });
    expect_right(crew);
    ASSERT_FALSE(testing::Test::HasFailure()) << crew.world.replay_line();
  }
  if (!whole_range()) return;
  EXPECT_GT(resets, 400) << "the test must reach what it is about";
}

TEST(SimLinks, AConnectionThatFallsSilentIsReplaced) {
  int silent = 0;
  for (const std::uint64_t seed : seeds(100)) {
    CrewOptions options = tcp_crew(seed, 256 << 10);
    options.settings.timeout = seconds{60};
    Crew crew(seed, options);
    ASSERT_TRUE(crew.assemble()) << crew.report();
    Dice& dice = crew.world.dice();
    silent += run_with(crew, milliseconds{5}, 1, [&](const auto& wires) {
      for (const std::uint64_t wire : wires)
        if (dice.chance(0.7) || wires.size() == 1) crew.world.stall(wire, true);
    });
    expect_right(crew);
    ASSERT_FALSE(testing::Test::HasFailure()) << crew.world.replay_line();
  }
  if (!whole_range()) return;
  EXPECT_GT(silent, 50) << "the test must reach what it is about";
}

TEST(SimLinks, FlippedBitsAreFoundAndSentAgain) {
  int flips = 0;
  for (const std::uint64_t seed : seeds(150)) {
    Crew crew(seed, tcp_crew(seed, 256 << 10));
    ASSERT_TRUE(crew.assemble()) << crew.report();
    Dice& dice = crew.world.dice();
    flips += run_with(crew, milliseconds{dice.chance(0.5) ? 1 : 30}, 6, [&](const auto& wires) {
      crew.world.flip_after(wires[dice.below(wires.size())], static_cast<int>(dice.below(2)), dice.below(5000),
                            std::byte(1 << dice.below(8)));
    });
    expect_right(crew);
    ASSERT_FALSE(testing::Test::HasFailure()) << crew.world.replay_line();
  }
  if (!whole_range()) return;
  EXPECT_GT(flips, 200) << "the test must reach what it is about";
}

TEST(SimLinks, ALinkThatCannotBeMadeAgainIsNamedByItsLimit) {
  for (const std::uint64_t seed : seeds(60)) {
    CrewOptions options = tcp_crew(seed, 64 << 10);
    options.ranks = std::max(options.ranks, 3);
    options.hosts = options.ranks;
    options.settings.link_timeout = milliseconds{1500};
    options.settings.timeout = seconds{60};
    options.exchanges = kForEver;
    options.agenda = random_agenda(seed, options.ranks, bearable_bytes(options.world, 64 << 10));
    Crew crew(seed, options);
    ASSERT_TRUE(crew.assemble()) << crew.report();
    run_into_work(crew);
    const auto pairs = connected_pairs(crew);
    if (pairs.empty()) continue;
    const auto [a, b] = pairs[crew.world.dice().below(pairs.size())];
    crew.world.blackhole(a, b);                                    // a host each, in order; others pass word around it
    for (const std::uint64_t wire : crew.data_wires(a, b)) crew.world.reset(wire);
    const TimePoint since = crew.world.now();
    EXPECT_TRUE(crew.run_until_over(seconds{30})) << crew.report();
    expect_one_verdict(crew, since, seconds{12});     // one end may see silence only
    const Status& verdict = *crew.rank(0).verdict;
    EXPECT_TRUE(verdict.culprit() == a || verdict.culprit() == b) << crew.report();
    EXPECT_NE(verdict.text().find("TUTTI_LINK_TIMEOUT"), std::string::npos) << crew.report();
    ASSERT_FALSE(testing::Test::HasFailure()) << crew.world.replay_line();
  }
}

TEST(SimLinks, ADeathAmongBreakingLinksIsNamedAtOnce) {
  for (const std::uint64_t seed : seeds(100)) {
    CrewOptions options = tcp_crew(seed, 64 << 10);
    options.exchanges = kForEver;
    Crew crew(seed, options);
    ASSERT_TRUE(crew.assemble()) << crew.report();
    run_into_work(crew);
    Dice& dice = crew.world.dice();
    for (const auto& [a, b] : connected_pairs(crew))
      if (dice.chance(0.5))
        for (const std::uint64_t wire : crew.data_wires(a, b)) crew.world.reset(wire);
    crew.world.run_for(dice.up_to(milliseconds{2}));
    const int victim = static_cast<int>(dice.below(static_cast<std::uint64_t>(crew.count())));
    const TimePoint since = crew.world.now();
    crew.world.kill(victim);
    EXPECT_TRUE(crew.run_until_over(seconds{10}, victim)) << "victim " << victim << ", " << crew.report();
    expect_one_verdict(crew, since, seconds{2}, victim);
    EXPECT_TRUE(crew.all(
        [&](const CrewRank& rank) {
          return rank.verdict && rank.verdict->code() == Code::peer_lost && rank.verdict->culprit() == victim;
        },
        victim))
        << "victim " << victim << ", " << crew.report();
    ASSERT_FALSE(testing::Test::HasFailure()) << crew.world.replay_line();
  }
}

// What something between the hosts cuts: a firewall that forgets idle connections, say. In the midst, both ends may see
// it or one after the other; what was said over them and not heard is said again.
TEST(SimLinks, ControlLinksThatAreCutAreMadeAgain) {
  int cuts = 0;
  for (const std::uint64_t seed : seeds(150)) {
    CrewOptions options = tcp_crew(seed, 64 << 10);
    options.hosts = options.ranks;                                 // those inside a host do not cross anything
    Crew crew(seed, options);
    ASSERT_TRUE(crew.assemble()) << crew.report();
    Dice& dice = crew.world.dice();
    const auto over = [&] { return crew.all([](const CrewRank& rank) { return rank.over(); }); };
    for (int round = 0; round < 6 && !crew.world.run_until(over, dice.up_to(milliseconds{10})); ++round)
      for (int a = 0; a < crew.count(); ++a)
        for (int b = 0; b < a; ++b)
          for (const std::uint64_t wire : crew.control_wires(a, b))
            if (dice.chance(0.5)) crew.world.reset(wire), ++cuts;
    crew.run_until_over(seconds{300});
    expect_right(crew);
    ASSERT_FALSE(testing::Test::HasFailure()) << crew.world.replay_line();
  }
  if (!whole_range()) return;
  EXPECT_GT(cuts, 200) << "the test must reach what it is about";
}

// The verdict about a death finds its way over links that are cut at the same time.
TEST(SimLinks, ADeathIsToldAlthoughControlLinksAreCut) {
  for (const std::uint64_t seed : seeds(100)) {
    CrewOptions options = tcp_crew(seed, 64 << 10);
    options.hosts = options.ranks;
    options.exchanges = kForEver;
    Crew crew(seed, options);
    ASSERT_TRUE(crew.assemble()) << crew.report();
    run_into_work(crew);
    Dice& dice = crew.world.dice();
    const int victim = static_cast<int>(dice.below(static_cast<std::uint64_t>(crew.count())));
    const auto cut = [&] {
      for (int a = 0; a < crew.count(); ++a)
        for (int b = 0; b < a; ++b)
          for (const std::uint64_t wire : crew.control_wires(a, b))
            if (dice.chance(0.5)) crew.world.reset(wire);
    };
    cut();
    crew.world.run_for(dice.up_to(milliseconds{2}));
    const TimePoint since = crew.world.now();
    crew.world.kill(victim);
    crew.world.run_for(dice.up_to(milliseconds{2}));
    cut();
    EXPECT_TRUE(crew.run_until_over(seconds{10}, victim)) << "victim " << victim << ", " << crew.report();
    expect_one_verdict(crew, since, seconds{2}, victim);
    EXPECT_TRUE(
        crew.all([&](const CrewRank& rank) { return rank.verdict && rank.verdict->culprit() == victim; }, victim))
        << "victim " << victim << ", " << crew.report();
    ASSERT_FALSE(testing::Test::HasFailure()) << crew.world.replay_line();
  }
}

TEST(SimLinks, EncryptedOnesBreakAndFlipAsWell) {
  for (const std::uint64_t seed : seeds(60)) {
    CrewOptions options = tcp_crew(seed, 256 << 10);
    options.settings.encrypt = true;
    Crew crew(seed, options);
    ASSERT_TRUE(crew.assemble()) << crew.report();
    Dice& dice = crew.world.dice();
    run_with(crew, milliseconds{dice.chance(0.5) ? 1 : 30}, 6, [&](const auto& wires) {
      const std::uint64_t wire = wires[dice.below(wires.size())];
      const int end = static_cast<int>(dice.below(2));
      if (dice.chance(0.5)) crew.world.reset_after(wire, end, 1 + dice.below(20'000));
      else crew.world.flip_after(wire, end, dice.below(5000), std::byte(1 << dice.below(8)));
    });
    expect_right(crew);
    ASSERT_FALSE(testing::Test::HasFailure()) << crew.world.replay_line();
  }
}

}  // namespace
}  // namespace tutti::sim
