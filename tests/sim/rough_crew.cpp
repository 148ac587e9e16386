#include "tests/sim/rough_crew.h"

#include <algorithm>

namespace tutti::sim {

Agenda random_agenda(std::uint64_t seed, int ranks, std::size_t most_bytes) {
  return [=](int, int index) {
    Dice dice{seed * 1000003 + static_cast<std::uint64_t>(index)};
    return any_exchange(dice, ranks, most_bytes);
  };
}

std::size_t bearable_bytes(const SimOptions& options, std::size_t most) {
  for (const LinkOptions* link : {&options.network, &options.loopback, &options.unix_socket})
    most = std::min(most, 128 * std::min(link->segment, link->window));
  return std::max<std::size_t>(most, 64);
}

CrewOptions rough_crew(std::uint64_t seed, std::size_t most_bytes) {
  Dice dice{seed ^ 0x63726577};
  CrewOptions options;
  options.world = rough_options(seed);
  options.ranks = 2 + static_cast<int>(dice.below(7));
  options.hosts =
      1 + static_cast<int>(dice.below(std::min<std::uint64_t>(3, static_cast<std::uint64_t>(options.ranks))));
  options.settings.transport = dice.chance(0.6) ? "tcp" : "auto";
  options.settings.sockets = static_cast<int>(dice.below(4));
  if (dice.chance(0.3)) options.settings.segment = 1024 << dice.below(8);
  options.agenda = random_agenda(seed, options.ranks, bearable_bytes(options.world, most_bytes));
  options.most_pending = 1 + static_cast<int>(dice.below(4));
  options.pause = dice.chance(0.5) ? microseconds{0} : microseconds{500};
  return options;
}

void expect_right(const Crew& crew) {
  const auto right = [](const CrewRank& rank) { return rank.done() && !rank.verdict && rank.wrong == 0; };
  EXPECT_TRUE(crew.all(right)) << crew.report();
}

void run_into_work(Crew& crew) {
  crew.world.run_until([&] { return crew.all([](const CrewRank& rank) { return rank.completed >= 3; }); }, seconds{60});
  crew.world.run_for(crew.world.dice().up_to(milliseconds{crew.world.dice().chance(0.5) ? 1 : 20}));
}

void expect_one_verdict(Crew& crew, TimePoint since, Nanoseconds within, int except) {
  const CrewRank& first = crew.rank(except == 0 ? 1 : 0);
  const auto agrees = [&](const CrewRank& rank) {
    return rank.verdict && rank.verdict->code() == first.verdict->code() &&
           rank.verdict->culprit() == first.verdict->culprit() && rank.later_verdicts.empty();
  };
  ASSERT_TRUE(first.verdict) << crew.report();
  EXPECT_TRUE(crew.all(agrees, except)) << crew.report();
  EXPECT_TRUE(crew.all([&](const CrewRank& rank) { return rank.verdict_at - since <= within; }, except))
      << crew.report();
  EXPECT_TRUE(crew.all([](const CrewRank& rank) { return rank.spoiled == 0 && rank.wrong == 0; }, except))
      << crew.report();
}

std::vector<std::pair<int, int>> connected_pairs(Crew& crew) {
  std::vector<std::pair<int, int>> pairs;
  for (int a = 0; a < crew.count(); ++a) {
    for (int b = 0; b < a; ++b)
      if (crew.rank(a).reaches(b) && crew.rank(b).reaches(a)) pairs.push_back({a, b});
  }
  return pairs;
}

}  // namespace tutti::sim
