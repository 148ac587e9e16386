// Cards against closed forms and lower bounds that do not come from the generators.
#include <cmath>
#include <fstream>
#include <gtest/gtest.h>
#include <sstream>
#include "algorithms/borders.h"
#include "algorithms/checker.h"
#include "algorithms/nest.h"
#include "algorithms/steps.h"
#include "tests/algorithms/requests.h"

namespace tutti::algorithms::test {
namespace {

Request request_for(Collective what, int rank_count, Levels levels = {}) {
  return {.collective = what, .rank_count = rank_count, .root = 0, .in_place = false, .levels = std::move(levels)};
}

// Somebody has to send what everybody lacks: p-1 of p blocks in all_gather and reduce_scatter, twice that in
// all_reduce.
TEST(Costs, nobody_beats_the_bandwidth_bound_and_the_optimal_ones_meet_it) {
  for (const Generator* generator : generators()) {
    for (int p = 2; p <= 33; ++p) {
      for (const Request& request : requests(*generator, p)) {
        const double part = double(p - 1) / p;
        double bound = 0;
        if (request.collective == Collective::all_reduce) bound = 2 * part;
        if (request.collective == Collective::all_gather || request.collective == Collective::reduce_scatter)
          bound = part;
        const double sent = generator->cost(request).sent;
        EXPECT_GE(sent, bound - 1e-9) << generator->name() << " " << described(request);
        const std::string_view name = generator->name();
        const bool optimal = name == "ring" || name == "bidirectional_ring" || name == "two_shot" ||
                             name == "circulant" || name == "pat" ||
                             (name == "bruck" && request.collective != Collective::all_to_all);
        if (optimal) { EXPECT_NEAR(sent, bound, 1e-9) << name << " " << described(request); }
      }
    }
  }
}

// Without multicast and n-input passes knowledge at most doubles a round.
TEST(Costs, logarithmic_ones_take_the_fewest_rounds_and_messages) {
  for (int p = 2; p <= 130; ++p) {
    const int least = int(std::ceil(std::log2(double(p)) - 1e-12));
    EXPECT_EQ(find_generator("recursive_doubling")->cost(request_for(Collective::all_reduce, p)).rounds, least) << p;
    for (Collective what : {Collective::all_gather, Collective::reduce_scatter}) {
      for (const char* name : {"bruck", "pat"}) {
        const Cost cost = find_generator(name)->cost(request_for(what, p));
        EXPECT_EQ(cost.messages, least) << name << " " << p;
        EXPECT_LE(cost.rounds, least) << name << " " << p;
      }
      EXPECT_LE(find_generator("circulant")->cost(request_for(what, p)).rounds, least + 1) << p;
    }
    EXPECT_EQ(find_generator("binomial")->cost(request_for(Collective::reduce, p)).rounds, least) << p;
    EXPECT_LE(find_generator("binomial")->cost(request_for(Collective::broadcast, p)).rounds, least) << p;
    EXPECT_LE(find_generator("tree")->cost(request_for(Collective::all_reduce, p)).rounds, 2 * least) << p;
  }
}

TEST(Costs, hierarchical_with_equal_groups_has_a_closed_form) {
  const Generator& generator = *find_generator("hierarchical");
  for (int hosts : {2, 3, 4, 8}) {
    for (int each : {2, 4, 5, 8}) {
      const int p = hosts * each;
      const Levels levels = {grouped(p, {each})};
      const double run = double(hosts) / p;   // a member's share of the blocks: 1 / each
      const Cost gather = generator.cost(request_for(Collective::all_gather, p, levels));
      EXPECT_EQ(gather.rounds, 2);
      EXPECT_EQ(gather.messages, hosts + each - 1);
      EXPECT_NEAR(gather.sent, 1, 1e-9);   // own block to each group, then the run to each member
      EXPECT_NEAR(gather.written, 1.0 / p + run, 1e-9);
      const Cost scatter = generator.cost(request_for(Collective::reduce_scatter, p, levels));
      EXPECT_EQ(scatter.rounds, 2);
      EXPECT_EQ(scatter.messages, hosts + each - 1);
      EXPECT_NEAR(scatter.sent, 1, 1e-9);
      EXPECT_NEAR(scatter.reduced, 1 + run, 1e-9);   // each members' run, then hosts' sums of the own block
      const Cost both = generator.cost(request_for(Collective::all_reduce, p, levels));
      EXPECT_EQ(both.rounds, 4);
      EXPECT_NEAR(both.sent, 2.0 * (p - 1) / p, 1e-9);   // optimal: no block is bound to a rank
      EXPECT_NEAR(both.reduced, 1 + run, 1e-9);
      EXPECT_EQ(both.messages, 2 * (hosts + each - 2));
    }
  }
}

// Blocks that leave one group, counted from the schedules.
double leaving(const Request& request, const std::vector<int>& group_of, int group) {
  double chunks = 0;
  for (int rank = 0; rank < request.rank_count; ++rank) {
    if (group_of[std::size_t(rank)] != group) continue;
    for (const Step& step : find_generator("hierarchical")->generate(request, rank).steps) {
      if (step.kind != StepKind::send) continue;
      for (int peer : step.peers) chunks += group_of[std::size_t(peer)] != group ? step.source.count : 0;
    }
  }
  return chunks;
}

TEST(Costs, hierarchical_crosses_borders_once_a_group) {
  for (int p : {6, 8, 12, 17}) {
    for (const Levels& levels : groupings(p)) {
      if (!find_generator("hierarchical")->refusal(request_for(Collective::all_gather, p, levels)).empty()) continue;
      const std::vector<int>& group_of = levels[0];   // ids count from 0 in order
      const int groups = *std::max_element(group_of.begin(), group_of.end()) + 1;
      for (int group = 0; group < groups; ++group) {
        const int size = int(std::count(group_of.begin(), group_of.end(), group));
        EXPECT_EQ(leaving(request_for(Collective::all_gather, p, levels), group_of, group), size * (groups - 1));
        EXPECT_EQ(leaving(request_for(Collective::reduce_scatter, p, levels), group_of, group), p - size);
        const int turns = p / groups + (group < p % groups ? 1 : 0);   // blocks that this group completes
        EXPECT_EQ(leaving(request_for(Collective::all_reduce, p, levels), group_of, group),
                  turns * (groups - 1) + p - turns);
        EXPECT_EQ(leaving(request_for(Collective::broadcast, p, levels), group_of, group),
                  group == group_of[0] ? groups - 1 : 0);
        EXPECT_EQ(leaving(request_for(Collective::reduce, p, levels), group_of, group), group == group_of[0] ? 0 : 1);
      }
    }
  }
}

TEST(Costs, hierarchical_is_canonical_for_aligned_groups) {
  const Generator& generator = *find_generator("hierarchical");
  for (Collective what : {Collective::all_reduce, Collective::reduce_scatter, Collective::reduce}) {
    EXPECT_TRUE(generator.canonical(request_for(what, 16, {grouped(16, {4})})));
    EXPECT_TRUE(generator.canonical(request_for(what, 19, {grouped(19, {8})})));   // the last one is short
    EXPECT_TRUE(generator.canonical(request_for(what, 29, {grouped(29, {16}), grouped(29, {4})})));
    EXPECT_FALSE(generator.canonical(request_for(what, 12, {grouped(12, {3})})));
    EXPECT_FALSE(generator.canonical(request_for(what, 8, {{0, 1, 0, 1, 0, 1, 0, 1}})));   // dealt out in turn
  }
}

// Closed forms against what the schedules say, for every generator over groups in groups.
TEST(Borders, closed_forms_are_what_the_schedules_do) {
  int compared = 0, differ = 0;
  for (const int p : {2, 3, 5, 6, 8, 12, 17}) {
    for (const Generator* generator : generators()) {
      for (Request request : requests(*generator, p)) {
        for (const Levels& levels : groupings(p)) {
          request.levels = levels;
          if (!generator->refusal(request).empty() || Nest::refusal(request).find("within") != std::string_view::npos)
            continue;
          std::vector<Schedule> schedules;
          for (int rank = 0; rank < p; ++rank) schedules.push_back(generator->generate(request, rank));
          const std::vector<Border> said = generator->borders(request), counted = count_borders(request, schedules);
          ASSERT_EQ(said.size(), levels.size() + 1);
          ASSERT_EQ(counted.size(), levels.size() + 1);
          // A circulant message in two parts, at ranks where blocks pass the last one, is taken as one: its chain may
          // seem to have a hop that only the other part has.
          const bool circulant = generator->name() == "circulant";
          const auto at = std::mismatch(said.begin(), said.end(), counted.begin(),
                                        [](const Border& a, const Border& b) { return a.hops == b.hops; });
          const bool longer = at.first != said.end();
          if (longer && circulant) { EXPECT_EQ(at.first->hops, at.second->hops + 1) << described(request); }
          for (std::size_t level = 0; level < said.size(); ++level) {
            EXPECT_NEAR(said[level].bytes, counted[level].bytes, 1e-9)
                << generator->name() << " " << described(request) << " border " << level;
            EXPECT_EQ(said[level].messages, counted[level].messages)
                << generator->name() << " " << described(request) << " border " << level;
          }
          EXPECT_TRUE(circulant || !longer) << generator->name() << " " << described(request) << ": hops differ";
          ++compared;
          differ += longer;
        }
      }
    }
  }
  EXPECT_GT(compared, 5'000);
  EXPECT_LT(differ, 50);
}

// The case that people have: two sockets of four, a plain ring of eight goes 7 + 7 hops, two levels at most 3 + 3.
TEST(Borders, two_sockets_of_four) {
  const Levels sockets = {grouped(8, {4})};
  const auto of = [&](const char* name, const Levels& levels) {
    return find_generator(name)->borders(request_for(Collective::all_reduce, 8, levels));
  };
  const auto ring = of("ring", sockets), nested = of("hierarchical", sockets);
  EXPECT_EQ(ring[0].hops + ring[1].hops, 14);
  EXPECT_EQ(ring[0].hops, 4);                                 // twice there and back
  EXPECT_LE(nested[0].hops + nested[1].hops, 6);
  EXPECT_EQ(nested[0].hops, 2);
  // Dealt out in turn, the ring still crosses twice a loop.
  EXPECT_EQ(of("ring", {{0, 1, 0, 1, 0, 1, 0, 1}})[0].hops, 4);
  EXPECT_EQ(nested_order(request_for(Collective::all_reduce, 8, {{0, 1, 0, 1, 0, 1, 0, 1}})),
            (std::vector<int>{0, 2, 4, 6, 1, 3, 5, 7}));
  EXPECT_TRUE(nested_order(request_for(Collective::all_reduce, 8, sockets)).empty());
}

TEST(Generators, names_are_unique_and_found_and_refusals_say_why) {
  for (const Generator* generator : generators()) {
    EXPECT_EQ(find_generator(generator->name()), generator);
    EXPECT_FALSE(generator->source().empty());
    EXPECT_FALSE(generator->best_when().empty());
    EXPECT_FALSE(generator->refusal(request_for(Collective::barrier, 4)).empty());
    EXPECT_FALSE(generator->refusal(request_for(Collective::all_reduce, 0)).empty());
    Request bad = request_for(Collective::broadcast, 4);
    bad.root = 4;
    EXPECT_FALSE(generator->refusal(bad).empty());
  }
  EXPECT_EQ(find_generator("swing"), nullptr);
  const Generator& hierarchical = *find_generator("hierarchical");
  EXPECT_FALSE(hierarchical.refusal(request_for(Collective::all_reduce, 4)).empty());
  EXPECT_FALSE(hierarchical.refusal(request_for(Collective::all_reduce, 4, {{0, 0, 1}})).empty());
  EXPECT_NE(hierarchical.refusal(request_for(Collective::all_reduce, 4, {{0, 0, 1, 1}, {0, 1, 1, 0}})).find("within"),
            std::string_view::npos);
}

// A few schedules as text, for people: tests/golden/schedules/<generator>_<collective>_<ranks>.txt.
TEST(Generators, small_schedules_read_as_written_down) {
  struct Sample {
    const char* generator;
    Collective what;
    int ranks;
    Levels levels;
  };
  const std::vector<Sample> samples = {{"ring", Collective::all_reduce, 3, {}},
                                       {"two_shot", Collective::all_reduce, 3, {}},
                                       {"recursive_doubling", Collective::all_reduce, 5, {}},
                                       {"hierarchical", Collective::all_reduce, 4, {{0, 0, 1, 1}}}};
  for (const Sample& sample : samples) {
    const Request request = request_for(sample.what, sample.ranks, sample.levels);
    std::string text;
    for (int rank = 0; rank < sample.ranks; ++rank) {
      text +=
          "rank " + std::to_string(rank) + ": " + to_string(find_generator(sample.generator)->generate(request, rank));
    }
    const std::string path = std::string(TUTTI_SOURCE_DIR "/tests/golden/schedules/") + sample.generator + "_" +
                             std::string(name_of(sample.what)) + "_" + std::to_string(sample.ranks) + ".txt";
    std::ifstream file(path);
    std::stringstream golden;
    golden << file.rdbuf();
    EXPECT_EQ(text, golden.str()) << path;
  }
}

}  // namespace
}  // namespace tutti::algorithms::test
