// Ranks on described machines: levels, prices, and what the planner then chooses.
#include "comm/machine_placement.h"

#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "topology/read.h"

namespace tutti::comm {
namespace {

topology::Graph dual_epyc() {
  auto graph = topology::read_file(TUTTI_SOURCE_DIR "/tests/topology/data/dual-epyc-8gpu.nccl.xml");
  if (!graph) throw std::runtime_error(graph.status().to_string());
  return std::move(*graph);
}

std::vector<Plan> plans(const MachinePlacement& machine, int ranks, std::uint64_t bytes) {
  static std::vector<std::unique_ptr<Planner>> planners;
  planners.push_back(std::make_unique<Planner>(std::vector<Rule>{}, false, machine.placement.prices));
  Question question;
  question.request = {Collective::all_reduce, ranks, 0, false, machine.placement.levels};
  question.bytes = bytes;
  return *planners.back()->plans(question);
}

TEST(MachinePlacement, TheDualEpycHostHasTwoGroupsOfFour) {
  const auto machine = place_on(dual_epyc(), 8, 1);
  ASSERT_TRUE(machine.ok()) << machine.status().to_string();
  EXPECT_EQ(machine->device, "GPU");
  EXPECT_EQ(machine->placement.levels,
            (std::vector<std::vector<int>>{{0, 0, 0, 0, 0, 0, 0, 0}, {0, 0, 0, 0, 1, 1, 1, 1}}));
}

// At most 3 + 3 hops for small and middle sizes, of them at most 2 between the
// sockets; a large ring crosses them twice a loop.
TEST(MachinePlacement, TheDualEpycHostIsNotServedByAPlainRing) {
  const auto machine = place_on(dual_epyc(), 8, 1);
  ASSERT_TRUE(machine.ok());
  for (const std::uint64_t bytes :
       {std::uint64_t(8), std::uint64_t(4096), std::uint64_t(64) << 10, std::uint64_t(1) << 20}) {
    const Plan best = plans(*machine, 8, bytes).front();
    const auto borders = best.generator->borders({Collective::all_reduce, 8, 0, false, machine->placement.levels});
    int hops = 0;
    for (const auto& border : borders) hops += border.hops;
    EXPECT_LE(hops, 6) << best.generator->name() << " at " << bytes;
    EXPECT_LE(borders[1].hops, 2) << best.generator->name() << " at " << bytes;
  }
  const auto ring =
      algorithms::find_generator("ring")->borders({Collective::all_reduce, 8, 0, false, machine->placement.levels});
  EXPECT_EQ(ring[1].hops, 4);
}

// A square of links without diagonals: going 0 1 2 3 leaves the links twice, the ring of the planner never does, nor
// between hosts more often than once a host.
TEST(MachinePlacement, RingsGoAlongTheLinks) {
  const auto graph = topology::read_file(TUTTI_SOURCE_DIR "/tests/topology/data/cube-mesh-soc.txt");
  ASSERT_TRUE(graph.ok()) << graph.status().to_string();
  for (const int hosts : {1, 3}) {
    const auto machine = place_on(*graph, 4 * hosts, hosts);
    ASSERT_TRUE(machine.ok());
    const auto request = request_on(machine->placement, Collective::all_reduce, 4 * hosts, {});
    std::vector<int> next(std::size_t(request.rank_count));
    int unlinked = 0, between_hosts = 0;
    for (int rank = 0; rank < request.rank_count; ++rank)
      for (const auto& step : algorithms::find_generator("ring")->generate(request, rank).steps)
        if (step.kind == algorithms::StepKind::send) next[std::size_t(rank)] = step.peers[0];
    for (int rank = 0; rank < request.rank_count; ++rank) {
      const int to = next[std::size_t(rank)];
      const std::pair pair(std::min(rank % 4, to % 4), std::max(rank % 4, to % 4));
      between_hosts += rank / 4 != to / 4;
      unlinked += rank / 4 == to / 4 && (pair == std::pair(1, 2) || pair == std::pair(0, 3));
    }
    EXPECT_EQ(unlinked, 0) << hosts;
    EXPECT_EQ(between_hosts, hosts == 1 ? 0 : hosts);
  }
}

TEST(MachinePlacement, SeveralHostsComeOutermost) {
  const auto machine = place_on(dual_epyc(), 32, 4);
  ASSERT_TRUE(machine.ok());
  ASSERT_EQ(machine->placement.levels.size(), 2u);
  EXPECT_EQ(machine->placement.levels[0][7], 0);
  EXPECT_EQ(machine->placement.levels[0][8], 1);
  EXPECT_EQ(machine->placement.levels[1][31], 7);
  EXPECT_STREQ(machine->placement.prices.borders[0].name, "host");
  EXPECT_EQ(plans(*machine, 32, 1 << 20).front().generator->name(), "hierarchical");
}

TEST(MachinePlacement, CoresAreSharedOutOverNumaNodes) {
  const auto graph = topology::read_synthetic("package:2 numa:2 core:4 pu:2", "synthetic");
  ASSERT_TRUE(graph.ok()) << graph.status().to_string();
  const auto machine = place_on(*graph, 8, 1);
  ASSERT_TRUE(machine.ok());
  EXPECT_EQ(machine->device, "CPU");
  EXPECT_EQ(
      machine->placement.levels,
      (std::vector<std::vector<int>>{{0, 0, 0, 0, 0, 0, 0, 0}, {0, 0, 0, 0, 1, 1, 1, 1}, {0, 0, 1, 1, 2, 2, 3, 3}}));
}

TEST(MachinePlacement, ImpossibleNumbersAreRefused) {
  EXPECT_EQ(place_on(dual_epyc(), 3, 4).status().code(), Code::invalid_argument);
  EXPECT_EQ(place_on(dual_epyc(), 3, 0).status().code(), Code::invalid_argument);
}

}  // namespace
}  // namespace tutti::comm
