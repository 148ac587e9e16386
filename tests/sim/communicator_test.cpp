// The real communicator in the simulated world: right results in rough worlds, and one verdict for all when a
// connection, a process, a path or the program of a rank is at fault.
#include <gtest/gtest.h>

#include <algorithm>

#include "core/log.h"
#include "tests/sim/rough_crew.h"
#include "tests/sim/seeds.h"

namespace tutti::sim {
namespace {

TEST(SimCommunicator, RandomExchangesInRoughWorldsAreRight) {
  for (const std::uint64_t seed : seeds(200)) {
    CrewOptions options = rough_crew(seed, 1 << 20);
    options.exchanges = 8;
    Crew crew(seed, options);
    ASSERT_TRUE(crew.assemble()) << crew.report();
    crew.run_until_over(seconds{300});
    expect_right(crew);
    EXPECT_EQ(crew.debts(), "") << "set aside for ever; " << crew.world.replay_line();
    ASSERT_FALSE(testing::Test::HasFailure()) << crew.world.replay_line();
  }
}

TEST(SimCommunicator, OneOfThreeSocketsOfAPairIsResetAndNobodyNotices) {
  int resets = 0;
  for (const std::uint64_t seed : seeds(100)) {
    CrewOptions options = rough_crew(seed, 256 << 10);
    options.settings.transport = "tcp";
    options.settings.sockets = 3;
    options.exchanges = 10;
    Crew crew(seed, options);
    ASSERT_TRUE(crew.assemble()) << crew.report();
    std::set<std::pair<int, int>> hit;
    const auto over = [&] {
      for (int a = 0; a < crew.count(); ++a) {
        for (int b = 0; b < a; ++b) {
          if (hit.count({a, b}) || !crew.rank(a).reaches(b) || !crew.rank(b).reaches(a)) continue;
          hit.insert({a, b});
          const auto wires = crew.data_wires(a, b);
          EXPECT_GE(wires.size(), 3U);      // and perhaps one to another address of the host, which came second
          Dice& dice = crew.world.dice();
          crew.world.reset_after(wires[dice.below(wires.size())], static_cast<int>(dice.below(2)),
                                 1 + dice.below(2000));
        }
      }
      return crew.all([](const CrewRank& rank) { return rank.over(); });
    };
    crew.world.run_until(over, seconds{300});
    resets += static_cast<int>(hit.size());
    expect_right(crew);
    ASSERT_FALSE(testing::Test::HasFailure()) << crew.world.replay_line();
  }
  if (!whole_range()) return;
  EXPECT_GT(resets, 300) << "the test must reach what it is about";
}

TEST(SimCommunicator, APairThatLosesAllItsSocketsForGoodGivesAllRanksOneVerdict) {
  int cut = 0;
  for (const std::uint64_t seed : seeds(100)) {
    CrewOptions options = rough_crew(seed, 64 << 10);
    options.settings.link_timeout = milliseconds{0};
    options.settings.transport = "tcp";
    options.exchanges = kForEver;
    Crew crew(seed, options);
    ASSERT_TRUE(crew.assemble()) << crew.report();
    run_into_work(crew);
    const auto pairs = connected_pairs(crew);
    if (pairs.empty()) continue;
    const auto [a, b] = pairs[crew.world.dice().below(pairs.size())];
    for (const std::uint64_t wire : crew.data_wires(a, b)) {
      crew.world.after(crew.world.dice().up_to(microseconds{500}), [&crew, wire] { crew.world.reset(wire); });
    }
    ++cut;
    const TimePoint since = crew.world.now();
    EXPECT_TRUE(crew.run_until_over(seconds{5})) << crew.report();
    expect_one_verdict(crew, since, seconds{2});
    const Status& verdict = *crew.rank(0).verdict;
    EXPECT_TRUE(verdict.code() == Code::peer_lost || verdict.code() == Code::network) << crew.report();
    EXPECT_TRUE(verdict.culprit() == a || verdict.culprit() == b) << crew.report();
    ASSERT_FALSE(testing::Test::HasFailure()) << crew.world.replay_line();
  }
  if (!whole_range()) return;
  EXPECT_GT(cut, 90) << "the test must reach what it is about";
}

// Two hosts of several ranks: one multicast goes over memory and sockets, whose segments have other sizes.
TEST(SimCommunicator, LargeMulticastsOverDifferentWiresAreRight) {
  for (const std::uint64_t seed : seeds(4))
    for (const Collective what :
         {Collective::all_reduce, Collective::broadcast, Collective::all_gather, Collective::reduce_scatter}) {
      CrewOptions options;
      options.ranks = 4 + static_cast<int>(seed % 3);
      options.hosts = 2;
      options.settings.algo = "direct";
      options.agenda = [=, ranks = options.ranks](int, int index) {
        return Exchange{.what = what, .count = std::size_t(150'000), .salt = std::uint64_t(index), .ranks = ranks};
      };
      options.exchanges = 2;
      Crew crew(seed, options);
      ASSERT_TRUE(crew.assemble()) << crew.report();
      crew.run_until_over(seconds{60});
      expect_right(crew);
      ASSERT_FALSE(testing::Test::HasFailure()) << name_of(what) << " " << crew.world.replay_line();
    }
}

TEST(SimCommunicator, AKilledProcessIsNamedToAllOthers) {
  for (const std::uint64_t seed : seeds(150)) {
    CrewOptions options = rough_crew(seed, 64 << 10);
    options.exchanges = kForEver;
    Crew crew(seed, options);
    ASSERT_TRUE(crew.assemble()) << crew.report();
    crew.world.run_for(crew.world.dice().up_to(milliseconds{crew.world.dice().chance(0.5) ? 1 : 50}));
    const int victim = static_cast<int>(crew.world.dice().below(static_cast<std::uint64_t>(crew.count())));
    const TimePoint since = crew.world.now();
    crew.world.kill(victim);
    EXPECT_TRUE(crew.run_until_over(seconds{10}, victim)) << "victim " << victim << ", " << crew.report();
    expect_one_verdict(crew, since, seconds{2}, victim);
    const auto names_it = [&](const CrewRank& rank) {
      return rank.verdict && rank.verdict->code() == Code::peer_lost && rank.verdict->culprit() == victim &&
             rank.verdict->text().find("rank " + std::to_string(victim)) != std::string::npos;
    };
    EXPECT_TRUE(crew.all(names_it, victim)) << "victim " << victim << ", " << crew.report();
    ASSERT_FALSE(testing::Test::HasFailure()) << crew.world.replay_line();
  }
}

// A segment that several take is shared. One of them stands still until its lane is full, and dies: the others' share
// is taken back.
TEST(SimCommunicator, ADeathInTheMiddleOfASharedSegmentIsAVerdictToo) {
  for (const std::uint64_t seed : seeds(8)) {
    Dice dice{seed ^ 0x7368};
    CrewOptions options;
    options.ranks = 3 + static_cast<int>(dice.below(4));
    options.settings.transport = "shm";
    options.settings.algo = "direct";
    options.settings.segment = 512 << dice.below(4);
    options.agenda = [ranks = options.ranks](int, int) {
      return Exchange{.what = Collective::all_gather, .count = 20'000, .ranks = ranks};
    };
    options.exchanges = kForEver;
    Crew crew(seed, options);
    ASSERT_TRUE(crew.assemble()) << crew.report();
    run_into_work(crew);
    const int victim = static_cast<int>(dice.below(static_cast<std::uint64_t>(crew.count())));
    crew.world.pause(victim);
    crew.world.run_for(milliseconds{20});
    const TimePoint since = crew.world.now();
    crew.world.kill(victim);
    EXPECT_TRUE(crew.run_until_over(seconds{5}, victim)) << crew.report();
    expect_one_verdict(crew, since, seconds{2}, victim);
    ASSERT_FALSE(testing::Test::HasFailure()) << crew.world.replay_line();
  }
}

TEST(SimCommunicator, AProcessThatStandsStillIsNamedInTime) {
  for (const std::uint64_t seed : seeds(60)) {
    CrewOptions options = rough_crew(seed, 64 << 10);
    options.settings.timeout = milliseconds{2000};
    options.exchanges = kForEver;
    Crew crew(seed, options);
    ASSERT_TRUE(crew.assemble()) << crew.report();
    run_into_work(crew);
    const int victim = static_cast<int>(crew.world.dice().below(static_cast<std::uint64_t>(crew.count())));
    const TimePoint since = crew.world.now();
    crew.world.pause(victim);
    EXPECT_TRUE(crew.run_until_over(seconds{10}, victim)) << "victim " << victim << ", " << crew.report();
    expect_one_verdict(crew, since, options.settings.timeout + seconds{1}, victim);
    // Also through a chain of waits.
    const auto names_it = [&](const CrewRank& rank) {
      return rank.verdict && rank.verdict->code() == Code::timeout && rank.verdict->culprit() == victim;
    };
    EXPECT_TRUE(crew.all(names_it, victim)) << "victim " << victim << ", " << crew.report();
    ASSERT_FALSE(testing::Test::HasFailure()) << crew.world.replay_line();
  }
}

// Hosts that do not reach each other for a while, from any moment on: while the
// first connections for data are made, or later.
TEST(SimCommunicator, APartitionThatHealsInTimeDelaysButHarmsNothing) {
  int delayed = 0;
  for (const std::uint64_t seed : seeds(100)) {
    CrewOptions options = rough_crew(seed, 64 << 10);
    if (options.hosts < 2) continue;
    options.settings.timeout = seconds{60};
    options.exchanges = 12;
    Crew crew(seed, options);
    ASSERT_TRUE(crew.assemble()) << crew.report();
    Dice& dice = crew.world.dice();
    crew.world.run_for(dice.up_to(milliseconds{dice.chance(0.7) ? 3 : 100}));
    std::vector<std::vector<int>> sides(2);
    sides[0].push_back(0);
    sides[1].push_back(1);
    for (int host = 2; host < options.hosts; ++host) sides[dice.below(2)].push_back(host);
    crew.world.partition(sides);
    const TimePoint healed = crew.world.now() + dice.up_to(seconds{dice.chance(0.5) ? 2 : 20});
    crew.world.run_for(healed - crew.world.now());
    delayed += !crew.all([](const CrewRank& rank) { return rank.over(); });
    crew.world.heal();
    crew.run_until_over(seconds{300});
    expect_right(crew);
    ASSERT_FALSE(testing::Test::HasFailure()) << crew.world.replay_line();
  }
  if (!whole_range()) return;
  EXPECT_GT(delayed, 30) << "the test must reach what it is about";
}

// Of the ranks that `goes_on` names: all are in one new communicator, in the old order, and work there.
void expect_carried_on(Crew& crew, const std::function<bool(const CrewRank&)>& goes_on) {
  int next = 0, all = 0;
  for (int r = 0; r < crew.count(); ++r) all += goes_on(crew.rank(r));
  for (int r = 0; r < crew.count(); ++r) {
    const CrewRank& rank = crew.rank(r);
    if (!goes_on(rank)) continue;
    EXPECT_TRUE(rank.shrunk && rank.shrunk->ok()) << "rank " << r;
    EXPECT_EQ(rank.new_place, (std::vector<int>{next, all})) << "rank " << r;
    EXPECT_EQ(rank.carried, crew.options.carry_on) << "rank " << r;
    EXPECT_EQ(rank.wrong, 0) << "rank " << r;
    ++next;
  }
}

TEST(SimCommunicator, SurvivorsOfKilledProcessesGoOn) {
  for (const std::uint64_t seed : seeds(150)) {
    CrewOptions options = rough_crew(seed, 64 << 10);
    options.exchanges = kForEver;
    options.carry_on = 6;
    Crew crew(seed, options);
    ASSERT_TRUE(crew.assemble()) << crew.report();
    run_into_work(crew);
    Dice& dice = crew.world.dice();
    std::set<int> victims;
    const int deaths = 1 + static_cast<int>(dice.below(static_cast<std::uint64_t>(crew.count() - 1)));
    for (int i = 0; i < deaths; ++i) {
      const int victim = static_cast<int>(dice.below(static_cast<std::uint64_t>(crew.count())));
      if (victims.insert(victim).second) crew.world.kill(victim);       // together: one failure for those who are left
    }
    const auto lives = [&](const CrewRank& rank) { return victims.count(rank.rank) == 0; };
    const auto over = [&] {
      return crew.all([&](const CrewRank& rank) {
        return !lives(rank) || (rank.shrunk && (!rank.shrunk->ok() || rank.second_verdict || rank.carried == 6));
      });
    };
    EXPECT_TRUE(crew.world.run_until(over, seconds{20})) << crew.report();
    expect_carried_on(crew, lives);
    ASSERT_FALSE(testing::Test::HasFailure()) << crew.world.replay_line() << crew.report();
  }
}

TEST(SimCommunicator, OfAPartitionAtMostOneSideGoesOn) {
  int went_on = 0;
  for (const std::uint64_t seed : seeds(100)) {
    CrewOptions options = rough_crew(seed, 64 << 10);
    if (options.hosts < 2) continue;
    options.settings.timeout = milliseconds{2000};
    options.exchanges = kForEver;
    options.carry_on = 4;
    Crew crew(seed, options);
    ASSERT_TRUE(crew.assemble()) << crew.report();
    run_into_work(crew);
    std::vector<std::vector<int>> sides{{0}, {1}};
    for (int host = 2; host < options.hosts; ++host) sides[crew.world.dice().below(2)].push_back(host);
    crew.world.partition(sides);
    const auto over = [&] {
      return crew.all([&](const CrewRank& rank) {
        return rank.shrunk && (!rank.shrunk->ok() || rank.second_verdict || rank.carried == 4);
      });
    };
    EXPECT_TRUE(crew.world.run_until(over, seconds{60})) << crew.report();
    // One that was cut off in the last moment of the agreement gets a communicator in which nothing completes.
    const auto goes_on = [](const CrewRank& rank) { return rank.carried == 4; };
    expect_carried_on(crew, goes_on);
    went_on += !crew.all([&](const CrewRank& rank) { return !goes_on(rank); });
    ASSERT_FALSE(testing::Test::HasFailure()) << crew.world.replay_line() << crew.report();
  }
  if (!whole_range()) return;
  EXPECT_GT(went_on, 30) << "the test must reach what it is about";
}

// What one rank makes instead of an all_reduce.
Exchange another(const Exchange& usual, Dice& dice) {
  Exchange x = usual;
  switch (dice.below(5)) {
    case 0: x.count += 1 + dice.below(100); break;
    case 1: x.type = usual.type == DataType::f32 ? DataType::i32 : DataType::f32; break;
    case 2: x.op = usual.op == ReduceOp::sum ? ReduceOp::max : ReduceOp::sum; break;
    case 3: x.what = Collective::all_gather; break;
    default: x.what = Collective::all_to_all; break;
  }
  return x;
}

TEST(SimCommunicator, ARankThatCallsSomethingElseIsAMismatchForAll) {
  for (const std::uint64_t seed : seeds(100)) {
    CrewOptions options = rough_crew(seed, 0);
    options.settings.timeout = seconds{5};
    Dice dice{seed};
    Exchange usual;
    usual.ranks = options.ranks;
    usual.count =
        1 + dice.below(std::min<std::size_t>(bearable_bytes(options.world, 64 << 10) / 8, 1 << dice.below(13)));
    usual.type = dice.chance(0.5) ? DataType::f32 : DataType::i64;
    const Exchange odd = another(usual, dice);
    const int deviant = static_cast<int>(dice.below(static_cast<std::uint64_t>(options.ranks)));
    options.exchanges = kForEver;
    options.agenda = [=](int rank, int index) { return rank == deviant && index == 3 ? odd : usual; };
    Crew crew(seed, options);
    ASSERT_TRUE(crew.assemble()) << crew.report();
    const TimePoint since = crew.world.now();
    EXPECT_TRUE(crew.run_until_over(seconds{60})) << crew.report();
    expect_one_verdict(crew, since, seconds{20});
    const auto names_both = [&](const CrewRank& rank) {
      const std::string& text = rank.verdict ? rank.verdict->text() : "";
      const auto says = [&](const Exchange& x) {
        const std::string call =
            std::string(name_of(x.what)) + " " + std::string(name_of(x.type)) + "[" + std::to_string(x.count) + "]";
        return text.find(call) != std::string::npos;
      };
      return rank.verdict && rank.verdict->code() == Code::mismatch && says(usual) && says(odd);
    };
    EXPECT_TRUE(crew.all(names_both)) << "deviant " << deviant << ", " << crew.report();
    ASSERT_FALSE(testing::Test::HasFailure()) << crew.world.replay_line();
  }
}

// Nobody waits for anything there: the operation ends well everywhere, and what was sent comes too late for it.
TEST(SimCommunicator, WhenAllThinkThatTheyAreTheRootAllHearOfIt) {
  for (const std::uint64_t seed : seeds(100)) {
    CrewOptions options = rough_crew(seed, 0);
    options.settings.timeout = seconds{5};
    Dice dice{seed};
    Exchange usual;
    usual.ranks = options.ranks;
    usual.count = 1 + dice.below(64);
    options.exchanges = kForEver;
    options.agenda = [=](int rank, int index) {
      Exchange x = usual;
      if (index != 3) return x;
      x.what = Collective::broadcast;
      x.root = rank;
      return x;
    };
    Crew crew(seed, options);
    ASSERT_TRUE(crew.assemble()) << crew.report();
    const TimePoint since = crew.world.now();
    EXPECT_TRUE(crew.run_until_over(seconds{60})) << crew.report();
    expect_one_verdict(crew, since, seconds{20});
    EXPECT_TRUE(crew.all([&](const CrewRank& rank) {
      return rank.verdict && rank.verdict->code() == Code::mismatch &&
             rank.verdict->text().find("operation 3: ") != std::string::npos &&
             rank.verdict->text().find(" called broadcast ") != rank.verdict->text().rfind(" called broadcast ");
    })) << crew.report();
    ASSERT_FALSE(testing::Test::HasFailure()) << crew.world.replay_line();
  }
}

TEST(SimCommunicator, TheSameSeedGivesTheSameRun) {
  for (const std::uint64_t seed : seeds(15)) {
    std::uint64_t hash[2], events[2];
    for (int run = 0; run < 2; ++run) {
      CrewOptions options = rough_crew(seed, 64 << 10);
      options.exchanges = 6;
      Crew crew(seed, options);
      ASSERT_TRUE(crew.assemble()) << crew.report();
      crew.run_until_over(seconds{300});
      hash[run] = crew.world.trace_hash();
      events[run] = crew.world.event_count();
    }
    EXPECT_EQ(hash[0], hash[1]) << "--seed " << seed;
    EXPECT_EQ(events[0], events[1]) << "--seed " << seed;
  }
}

}  // namespace
}  // namespace tutti::sim
