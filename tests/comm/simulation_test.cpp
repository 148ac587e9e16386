// Simulation: against times computed by hand, the planner's closed forms, the borders counted from schedules, and
// itself folded.
#include "comm/simulation.h"
#include "tests/comm/simulated.h"

#include <gtest/gtest.h>

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

namespace tutti::comm {
namespace {

using algorithms::find_generator;
using algorithms::generators;
using algorithms::Request;
using test::expect_fold, test::in_groups_of, test::request_of, test::run;

constexpr Collective kCollectives[] = {Collective::all_reduce, Collective::reduce_scatter, Collective::all_gather,
                                       Collective::broadcast,  Collective::reduce,         Collective::gather,
                                       Collective::scatter,    Collective::all_to_all};

// Whole seconds, so that sums can be done by hand: 64 bytes are 32 s on a rank's link, an operand of 64 bytes is 8 s.
Placement by_hand(std::vector<std::vector<int>> levels = {}) {
  Placement machine{std::move(levels), {}};
  machine.prices.borders = {BorderPrice{"rank", 10, 1, 0.5}};
  if (!machine.levels.empty())
    machine.prices.borders.insert(machine.prices.borders.begin(), BorderPrice{"host", 100, 3, 1});
  machine.prices.gamma = 0.125;
  machine.prices.shares_writes = false;
  return machine;
}

TEST(Simulation, TwoRanksSwapAndAdd) {
  // Each way: processor 1, link 32, on its way 10; between the two, two operands of 8.
  const Simulation s = run("ring", request_of(Collective::all_reduce, 2), by_hand(), {.bytes = 128});
  EXPECT_DOUBLE_EQ(s.seconds, 43 + 16 + 43);
  EXPECT_DOUBLE_EQ(s.earliest, s.seconds);
  EXPECT_DOUBLE_EQ(s.borders[0].bytes, 4 * 64);
  EXPECT_DOUBLE_EQ(s.borders[0].utilisation, 64.0 / 102);
  EXPECT_EQ(s.borders[0].messages, 4u);
  EXPECT_TRUE(s.exact());
}

TEST(Simulation, RingOfFour) {
  const Simulation whole = run("ring", request_of(Collective::all_reduce, 4), by_hand(), {.bytes = 256});
  EXPECT_DOUBLE_EQ(whole.seconds, 6 * 43 + 3 * 16);
  // Two segments of 32 bytes. The first arrives at 27, is added by 35, and 35 later (processor 1, link 16, way 10, sum
  // 8) the next rank has its sum, so that the fourth message starts at 1 + 3 * 35. From then on the link never rests:
  // three messages of two segments of 16, and 10 on the way.
  const Simulation cut =
      run("ring", request_of(Collective::all_reduce, 4), by_hand(), {.bytes = 256, .segment_bytes = 32});
  EXPECT_DOUBLE_EQ(cut.seconds, 106 + 6 * 16 + 10);
}

TEST(Simulation, AStarSharesItsLink) {
  // Ranks 1, 2, 3 of one host send 64 bytes each to rank 0 of another: the host's link takes them one after another,
  // 64 s each. The first begins at 3, when the processor is done; the last is there at 3 + 3 * 64 + 100; four operands.
  const std::vector<std::vector<int>> levels = {{0, 1, 1, 1}};
  const Simulation s = run("direct", request_of(Collective::reduce, 4), by_hand(levels), {.bytes = 64});
  EXPECT_DOUBLE_EQ(s.seconds, 3 + 192 + 100 + 32);
  EXPECT_DOUBLE_EQ(s.borders[0].busiest_bytes, 192);
  EXPECT_DOUBLE_EQ(s.borders[0].utilisation, 192 / s.seconds);
  EXPECT_DOUBLE_EQ(s.borders[1].bytes, 0);
  EXPECT_EQ(s.critical, 0u);
  EXPECT_DOUBLE_EQ(s.borders[0].saving, 1 - (1.5 + 96 + 50 + 32) / s.seconds);
  // On one host only the root's own link is shared: 1, three times 32, 10 on the way.
  const Simulation flat = run("direct", request_of(Collective::reduce, 4), by_hand(), {.bytes = 64});
  EXPECT_DOUBLE_EQ(flat.seconds, 1 + 96 + 10 + 32);
  // Senders are done when their link has it: 1 + 32.
  EXPECT_DOUBLE_EQ(flat.finished[1], 33);
  EXPECT_DOUBLE_EQ(flat.earliest, 33);
}

TEST(Simulation, AMulticastIsOneWriteWhereMemoryIsShared) {
  Placement machine = by_hand();
  const Request request = request_of(Collective::broadcast, 3);
  EXPECT_DOUBLE_EQ(run("direct", request, machine, {.bytes = 64}).seconds, 2 + 32 + 32 + 10);
  machine.prices.shares_writes = true;
  EXPECT_DOUBLE_EQ(run("direct", request, machine, {.bytes = 64}).seconds, 2 + 32 + 10);
  machine.prices.crowding = 3;
  EXPECT_DOUBLE_EQ(run("direct", request, machine, {.bytes = 64}).seconds, 3 * (2 + 32 + 10));
}

TEST(Simulation, SendsOfOneRankShareItsLinkFairly) {
  // A root scatters to two: without segments one message after the other, with segments of 32 bytes in turns.
  const Request request = request_of(Collective::scatter, 3);
  const Simulation whole = run("direct", request, by_hand(), {.bytes = 3 * 64});
  EXPECT_DOUBLE_EQ(whole.finished[1], 1 + 32 + 10);
  EXPECT_DOUBLE_EQ(whole.finished[2], 1 + 64 + 10);
  // 1-17 for rank 1, 17-33 for rank 2, 33-49 for rank 1, 49-65 for rank 2.
  const Simulation cut = run("direct", request, by_hand(), {.bytes = 3 * 64, .segment_bytes = 32});
  EXPECT_DOUBLE_EQ(cut.finished[1], 49 + 10);
  EXPECT_DOUBLE_EQ(cut.finished[2], 65 + 10);
}

TEST(Simulation, AgreesWithThePlannerWhereNothingIsShared) {
  Prices prices;
  prices.shares_writes = false;
  Placement flat{{}, prices};
  const std::pair<const char*, Collective> lockstep[] = {{"ring", Collective::all_reduce},
                                                         {"ring", Collective::reduce_scatter},
                                                         {"ring", Collective::all_gather},
                                                         {"recursive_doubling", Collective::all_reduce},
                                                         {"recursive_doubling", Collective::all_gather},
                                                         {"recursive_doubling", Collective::reduce_scatter}};
  for (const auto& [name, what] : lockstep)
    for (const int p : {2, 4, 8, 32})
      for (const std::uint64_t bytes : {2048, 1 << 20}) {
        const Request request = request_of(what, p);
        if (!find_generator(name)->refusal(request).empty()) continue;
        Planner planner({}, false, prices);
        const double predicted = planner.seconds(planner.card(*find_generator(name), request), bytes);
        EXPECT_NEAR(run(name, request, flat, {.bytes = bytes}).seconds / predicted, 1, 1e-9)
            << name << " " << name_of(what) << " " << p << " " << bytes;
      }
}

// A card adds up the worst of each figure, whatever overlaps, and knows no incoming links, nor that messages sent early
// hold up others: the simulator may be below it by half, above it by as much, and far above where many send whole
// vectors to one.
TEST(Simulation, StaysNearThePlanner) {
  Prices prices;
  prices.shares_writes = false;
  for (const algorithms::Generator* g : generators())
    for (const Collective what : kCollectives)
      for (const int p : {4, 8, 16})
        for (const std::uint64_t bytes : {4096, 1 << 20}) {
          const Request request = request_of(what, p);
          if (!g->refusal(request).empty()) continue;
          Planner planner({}, false, prices);
          const double predicted = planner.seconds(planner.card(*g, request), bytes);
          const bool many_to_one = what == Collective::gather || what == Collective::reduce;
          const Load load{.bytes = bytes,
                          .segment_bytes = bytes / 64};  // cards of chains and trees count on pipelining
          const double ratio =
              run(std::string(g->name()).c_str(), request, Placement{{}, prices}, load).seconds / predicted;
          EXPECT_GT(ratio, 0.5) << g->name() << " " << name_of(what) << " " << p << " " << bytes;
          EXPECT_LT(ratio, many_to_one ? p : 2.0) << g->name() << " " << name_of(what) << " " << p << " " << bytes;
        }
}

TEST(Simulation, MoreBytesTakeLongerAndNothingIsLeftToChance) {
  const Placement machine{{in_groups_of(4, 8)}, {.borders = {{"host", 10e-6, 3e-6, 1 / 2.5e9}, BorderPrice{}}}};
  for (const algorithms::Generator* g : generators())
    for (const Collective what : kCollectives) {
      const Request request = request_of(what, 8, machine.levels);
      if (!g->refusal(request).empty()) continue;
      double before = 0;
      for (const std::uint64_t bytes : {8 << 10, 64 << 10, 1 << 20, 16 << 20}) {
        const Load load{.bytes = bytes, .segment_bytes = 128 << 10};
        const Simulation s = run(std::string(g->name()).c_str(), request, machine, load);
        EXPECT_GT(s.seconds, before) << g->name() << " " << name_of(what) << " " << bytes;
        before = s.seconds;
        const Simulation again = run(std::string(g->name()).c_str(), request, machine, load);
        EXPECT_EQ(s.finished, again.finished);
      }
    }
}

// Every byte crosses where algorithms::borders counts it.
TEST(Simulation, BytesOverBordersAreConserved) {
  const std::vector<std::vector<int>> nests[] = {
      {}, {in_groups_of(4, 12)}, {in_groups_of(6, 12), in_groups_of(3, 12)}, {{0, 1, 0, 1, 2, 2, 0, 1, 0, 1, 2, 2}}};
  for (const auto& levels : nests)
    for (const algorithms::Generator* g : generators())
      for (const Collective what : kCollectives) {
        const Request request = request_of(what, 12, levels);
        if (!g->refusal(request).empty()) continue;
        std::uint64_t parts = 12;
        for (int r = 0; r < 12; ++r) {
          const auto schedule = g->generate(request, r);
          parts =
              std::lcm(parts, std::uint64_t(what == Collective::all_to_all ? 12 : schedule.blocks) * schedule.slices);
        }
        const Load load{.bytes = 64 * parts, .segment_bytes = 64};
        Placement machine = by_hand();
        machine.levels = levels;
        machine.prices.borders.resize(levels.size() + 1, BorderPrice{});
        const Simulation s = run(std::string(g->name()).c_str(), request, machine, load, {.find_critical = false});
        const auto expected = g->borders(request);
        ASSERT_EQ(expected.size(), s.borders.size());
        for (std::size_t i = 0; i < expected.size(); ++i)
          EXPECT_NEAR(s.borders[i].busiest_bytes, expected[i].bytes * double(load.bytes), 1e-3)
              << g->name() << " " << name_of(what) << " border " << i;
      }
}

TEST(Simulation, AFoldIsTheWhole) {
  for (const int host : {0, 8}) {
    expect_fold("ring", Collective::all_reduce, 64, host, 1 << 20);
    expect_fold("ring", Collective::all_gather, 64, host, 16 << 20);
    expect_fold("bidirectional_ring", Collective::all_reduce, 64, host, 1 << 20);
    expect_fold("two_shot", Collective::all_reduce, 64, host, 1 << 20);
    expect_fold("direct", Collective::all_reduce, 64, host, 1 << 20);
    expect_fold("direct", Collective::reduce_scatter, 64, host, 1 << 20);
    expect_fold("direct", Collective::all_to_all, 64, host, 1 << 20);
  }
}

TEST(Simulation, WhatCannotBeFoldedIsRefused) {
  const auto refusal = [](const char* name, const Request& request, const Placement& machine, std::uint64_t bytes,
                          Folding folding) {
    const auto s = simulate(*find_generator(name), request, machine, {.bytes = bytes}, {.folding = folding});
    return s.ok() ? "accepted" : s.status().to_string();
  };
  const auto has = [](const std::string& text, const char* part) { return text.find(part) != std::string::npos; };
  const Placement flat{{}, {}};
  const Placement uneven{{{0, 0, 0, 1, 1, 1, 1, 1}}, {.borders = {{"host"}, {}}}};
  EXPECT_PRED2(has, refusal("tree", request_of(Collective::all_reduce, 64), flat, 1 << 20, Folding::always),
               "do not do the same");
  EXPECT_PRED2(has, refusal("ring", request_of(Collective::all_reduce, 8), uneven, 1 << 20, Folding::always),
               "groups are not alike");
  EXPECT_PRED2(has, refusal("ring", request_of(Collective::all_reduce, 16384), flat, 1 << 20, Folding::when_needed),
               "choose a multiple of 2097152");
  EXPECT_PRED2(has, refusal("ring", request_of(Collective::gather, 8), flat, 1 << 20, Folding::never),
               "ring cannot serve gather among 8 ranks");
  EXPECT_PRED2(has, refusal("ring", request_of(Collective::all_reduce, 8), flat, 0, Folding::never),
               "at least one byte");
  EXPECT_PRED2(has, refusal("ring", request_of(Collective::all_reduce, 6), uneven, 64, Folding::never),
               "a group for each of 6 ranks");
  const auto s = simulate(*find_generator("ring"), request_of(Collective::all_reduce, 4), flat,
                          {.bytes = 1 << 30, .segment_bytes = 8});
  EXPECT_PRED2(has, s.status().to_string(), "choose larger ones than 8 bytes");
}

TEST(Simulation, ManyRanks) {
  // A tree of 16,383 is 13 hops up and 13 down for a chunk of one cache line.
  const Simulation tree = run("tree", request_of(Collective::all_reduce, 16384), Placement{}, {.bytes = 128});
  EXPECT_TRUE(tree.exact());
  EXPECT_GT(tree.seconds, 26 * 0.4e-6);
  EXPECT_LT(tree.seconds, 52 * 0.8e-6);
  EXPECT_LT(tree.memory_bytes / 16384, 4096u);
  // Groups of 256: one message to each other group, one to each rank inside, from the root and from 255 more.
  const Request request = request_of(Collective::broadcast, 65536, {in_groups_of(256, 65536)});
  EXPECT_EQ(find_generator("hierarchical")->generate(request, 0).steps.size(), 3u);
  EXPECT_EQ(find_generator("hierarchical")->generate(request, 256).steps.size(), 2u);
  // Blocks of 65,536 ranks: what each of 8 in a group answers for is 8,192 of them.
  const Request blocks = request_of(Collective::all_gather, 65536, {in_groups_of(8, 65536)});
  EXPECT_EQ(find_generator("hierarchical")->generate(blocks, 65535).scratch.size(), 0u);
  // A folded ring costs what one rank does, and goes around twice.
  Placement machine;
  machine.prices.borders = {BorderPrice{"rank", 0.4e-6, 0.1e-6, 1 / 9e9}};
  machine.prices.gamma = 1 / 12e9;
  const Simulation ring = run("ring", request_of(Collective::all_reduce, 65536), machine, {.bytes = 64 << 20});
  EXPECT_EQ(ring.width, 1);
  const double round = 0.4e-6 + 0.1e-6 + 1024 / 9e9;
  EXPECT_NEAR(ring.seconds, 2 * 65535 * round + 65535 * 2 * 1024 * machine.prices.gamma, 1e-9);
  EXPECT_DOUBLE_EQ(ring.borders[0].bytes, 2.0 * 65535 * 1024 * 65536);
}

// Two packages of four GPUs on PCIe: 2 us and 24 GB/s a rank inside, 4 us and 16 GB/s shared across.
Placement dual_epyc(std::vector<int> package_of) {
  Placement machine{{std::move(package_of)}, {}};
  machine.prices.borders = {BorderPrice{"package", 4e-6, 0, 1 / 16e9}, BorderPrice{"rank", 2e-6, 0, 1 / 24e9}};
  machine.prices.gamma = 1 / 400e9;
  machine.prices.shares_writes = false;
  return machine;
}

struct Best {
  double index_order = 0, ring = 0, seconds = 0;
  std::string algorithm;
};

// Each with the segment that suits it best; prints the table.
Best compare(const Placement& machine, std::uint64_t bytes, const char* numbering) {
  const Request aware = request_of(Collective::all_reduce, 8, machine.levels),
                blind = request_of(Collective::all_reduce, 8);
  const auto fastest = [&](const char* name, const Request& request) {
    Simulation best;
    for (const std::uint64_t segment : {0, 8 << 10, 32 << 10}) {
      const Simulation s = run(name, request, machine, {.bytes = bytes, .segment_bytes = segment});
      if (best.seconds == 0 || s.seconds < best.seconds) best = s;
    }
    return best;
  };
  const auto print = [](std::string_view name, const Simulation& s) {
    fmt::print("  {:<20} {:>8.1f} us {:>9.0f} KB across, busiest link there {:>3.0f} %, limited by {}\n", name,
               s.seconds * 1e6, s.borders[0].bytes / 1024, s.borders[0].utilisation * 100, s.borders[s.critical].name);
  };
  fmt::print("all_reduce of {} KB on 2 packages of 4, numbered {}\n", bytes >> 10, numbering);
  const Simulation plain = fastest("ring", blind);
  print("ring in index order", plain);
  Best best{plain.seconds, 0, 1, ""};
  for (const algorithms::Generator* g : generators()) {
    if (!g->refusal(aware).empty()) continue;
    const Simulation s = fastest(std::string(g->name()).c_str(), aware);
    print(g->name(), s);
    if (g->name() == "ring") best.ring = s.seconds;
    if (s.seconds < best.seconds) best = {best.index_order, best.ring, s.seconds, std::string(g->name())};
  }
  fmt::print("  {}: {:.0f} % less than the ring in index order\n", best.algorithm,
             100 * (1 - best.seconds / best.index_order));
  return best;
}

// Package by package the plain ring crosses twice already. At 1 MB a rank's own link alone takes 7/4 * 1 MB / 24 GB/s =
// 76 us, more than 58 % of that ring's time: there nobody can take 42 % less, and the ring remains best.
TEST(Simulation, DualEpycNumberedPackageByPackage) {
  const Placement machine = dual_epyc({0, 0, 0, 0, 1, 1, 1, 1});
  const Best middle = compare(machine, 64 << 10, "package by package"),
             large = compare(machine, 1 << 20, "package by package");
  EXPECT_EQ(middle.algorithm, "hierarchical");
  EXPECT_LE(middle.seconds, 0.58 * middle.index_order);
  EXPECT_DOUBLE_EQ(large.ring, large.index_order);
  EXPECT_GT(1.75 * (1 << 20) / 24e9, 0.58 * large.index_order);
  EXPECT_LE(large.seconds, large.index_order);
}

// Numbered in turns, the plain ring crosses at every hop.
TEST(Simulation, DualEpycNumberedInTurns) {
  const Placement machine = dual_epyc({0, 1, 0, 1, 0, 1, 0, 1});
  for (const std::uint64_t bytes : {64 << 10, 1 << 20}) {
    const Best best = compare(machine, bytes, "in turns");
    EXPECT_LE(best.seconds, 0.58 * best.index_order) << bytes;
    EXPECT_LT(best.ring, best.index_order) << bytes;
  }
  // Across goes a quarter.
  const Load load{.bytes = 1 << 20};
  const Simulation blind = run("ring", request_of(Collective::all_reduce, 8), machine, load);
  const Simulation aware = run("ring", request_of(Collective::all_reduce, 8, machine.levels), machine, load);
  EXPECT_DOUBLE_EQ(aware.borders[0].bytes, blind.borders[0].bytes / 4);
}

TEST(Simulation, TellsHowFarItIsAndCanBeGivenUp) {
  algorithms::Request request;
  request.rank_count = 16;
  const Placement machine{{}, {}, {}};
  std::vector<std::pair<int, int>> told;
  SimulationOptions options;
  options.go_on = [&told](int done, int of) { return told.emplace_back(done, of), true; };
  ASSERT_TRUE(simulate(*algorithms::find_generator("tree"), request, machine, {.bytes = 1024}, options).ok());
  ASSERT_EQ(told.size(), 16u);
  EXPECT_EQ(told.front(), std::pair(1, 16));
  EXPECT_EQ(told.back(), std::pair(16, 16));
  options.go_on = [](int done, int) { return done < 3; };
  EXPECT_EQ(simulate(*algorithms::find_generator("tree"), request, machine, {.bytes = 1024}, options).status().code(),
            Code::aborted);
}

}  // namespace
}  // namespace tutti::comm
