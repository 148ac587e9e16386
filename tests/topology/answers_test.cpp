// Answers and rings on graphs made by hand; rings against all permutations.
#include <algorithm>
#include <numeric>
#include <random>

#include <gtest/gtest.h>

#include "tests/topology/expectations.h"
#include "topology/answers.h"
#include "topology/describe.h"
#include "topology/read.h"

namespace tutti::topology::test {
namespace {

class Builder {
 public:
  Builder() { add(VertexKind::machine, -1); }
  int add(VertexKind kind, int parent) {
    Vertex v;
    v.kind = kind;
    v.parent = parent;
    v.index = v.os_index = counts_[int(kind)]++;
    if (kind >= VertexKind::gpu) {
      v.pci = PciFunction{PciAddress{0, std::uint8_t(graph.vertices.size()), 0, 0}, 0, 0, 0};
      v.name = "d" + std::to_string(graph.vertices.size());
    }
    graph.vertices.push_back(v);
    return int(graph.vertices.size()) - 1;
  }
  void relate(int a, int b, Level level, const std::string& label) {
    graph.relations.push_back({std::min(a, b), std::max(a, b), level, label});
  }
  Graph sorted() {
    std::sort(graph.relations.begin(), graph.relations.end(),
              [](const Relation& x, const Relation& y) { return std::pair(x.a, x.b) < std::pair(y.a, y.b); });
    return graph;
  }
  Graph graph;

 private:
  int counts_[16] = {};
};

TEST(Answers, LevelsAreTheKindOfTheDeepestCommonAncestor) {
  Builder b;
  const int package = b.add(VertexKind::package, 0), other = b.add(VertexKind::package, 0);
  const int numa = b.add(VertexKind::numa, package), numa2 = b.add(VertexKind::numa, package);
  const int bridge = b.add(VertexKind::host_bridge, numa), bridge2 = b.add(VertexKind::host_bridge, numa);
  const int root_port = b.add(VertexKind::pci_bridge, bridge);
  const int a = b.add(VertexKind::gpu, root_port), same_switch = b.add(VertexKind::gpu, root_port),
            same_bridge = b.add(VertexKind::gpu, bridge);
  const int same_numa = b.add(VertexKind::gpu, bridge2), same_package = b.add(VertexKind::gpu, numa2),
            far = b.add(VertexKind::gpu, other);
  EXPECT_EQ(level_between(b.graph, a, a), Level::same_device);
  EXPECT_EQ(level_between(b.graph, a, same_switch), Level::pci_switch);
  EXPECT_EQ(level_between(b.graph, a, same_bridge), Level::host_bridge);
  EXPECT_EQ(level_between(b.graph, a, same_numa), Level::numa);
  EXPECT_EQ(level_between(b.graph, a, same_package), Level::package);
  EXPECT_EQ(level_between(b.graph, far, a), Level::machine);
  EXPECT_EQ(groups_at(b.graph, Level::host_bridge), (Groups{{0, 1, 2}, {3}, {4}, {5}}));
  EXPECT_EQ(groups_at(b.graph, Level::package), (Groups{{0, 1, 2, 3, 4}, {5}}));
  EXPECT_EQ(nearest_gpus(b.graph), (std::vector<std::vector<int>>{{1}, {0}, {0, 1}, {0, 1, 2}, {0, 1, 2, 3}, {}}));
  EXPECT_EQ(nearest_groups(b.graph), std::nullopt);
}

TEST(Answers, ACacheBetweenIsPartOfWhatHoldsIt) {
  Builder b;
  const int package = b.add(VertexKind::package, 0);
  const int cache = b.add(VertexKind::cache, b.add(VertexKind::numa, package));
  const int x = b.add(VertexKind::gpu, cache), y = b.add(VertexKind::gpu, cache);
  EXPECT_EQ(level_between(b.graph, x, y), Level::numa);
}

TEST(Answers, ANumaNodeOfSeveralPackagesDoesNotJoinThem) {
  Builder b;
  const int numa = b.add(VertexKind::numa, 0);
  for (int p = 0; p < 2; ++p) {
    const int package = b.add(VertexKind::package, numa);
    b.add(VertexKind::gpu, package);
    b.add(VertexKind::gpu, package);
  }
  EXPECT_EQ(groups_at(b.graph, Level::numa), (Groups{{0, 1, 2, 3}}));
  EXPECT_EQ(groups_at(b.graph, Level::package), (Groups{{0, 1}, {2, 3}}));
  EXPECT_EQ(groups_within(b.graph, VertexKind::package), (Groups{{0, 1}, {2, 3}}));
  EXPECT_EQ(best_ring(b.graph).cross_package, 2);
  EXPECT_EQ(best_ring(b.graph).cross_numa, 0);
}

TEST(Answers, NicsAreNearUpToThePackageAndOnlyWithAPciDevice) {
  Builder b;
  const int package = b.add(VertexKind::package, 0), other = b.add(VertexKind::package, 0);
  b.add(VertexKind::gpu, package);
  b.add(VertexKind::gpu, other);
  const int plain = b.add(VertexKind::nic, package), rdma = b.add(VertexKind::nic, package),
            loose = b.add(VertexKind::nic, other);
  b.graph.vertices[std::size_t(plain)].net_names = {"eth0"};
  b.graph.vertices[std::size_t(rdma)].net_names = {"ib0"};
  b.graph.vertices[std::size_t(rdma)].verbs_names = {"mlx5_0"};
  b.graph.vertices[std::size_t(loose)].pci.reset();
  EXPECT_EQ(nearest_nics(b.graph), (std::vector<std::vector<int>>{{0, 1}, {}}));
  EXPECT_EQ(nearest_rdma_nics(b.graph), (std::vector<std::vector<int>>{{1}, {}}));
  nlohmann::json d = describe(b.graph);
  EXPECT_EQ(d["nearest_nic"], nlohmann::json({{"0", {"eth0", "mlx5_0"}}}));
  EXPECT_EQ(d["nearest_rdma_nic"], nlohmann::json({{"0", {"mlx5_0"}}}));
  EXPECT_EQ(d["no_local_rdma_nic"], nlohmann::json({1}));
  EXPECT_EQ(d["nics"], 2);
  // Guessed packages make nothing near.
  for (const int p : {package, other}) b.graph.vertices[std::size_t(p)].os_index = -1;
  EXPECT_EQ(nearest_nics(b.graph), (std::vector<std::vector<int>>{{}, {}}));
  EXPECT_EQ(package_nics(b.graph), (std::vector<std::vector<int>>{{0, 1}, {}}));
}

TEST(Answers, LinkLabels) {
  for (const char* link : {"NV1", "NV18", "XGMI", "MX2", "MX"}) EXPECT_TRUE(names_link(link)) << link;
  for (const char* not_a_link : {"NODE", "SYS", "X", "", "N", "NV", "NVx", "PIX"})
    EXPECT_FALSE(names_link(not_a_link)) << not_a_link;
}

TEST(Answers, AnEmptyGraphAndASingleGpuHaveAnswers) {
  Builder b;
  EXPECT_EQ(best_ring(b.graph).order, std::vector<int>());
  EXPECT_EQ(nearest_groups(b.graph), Groups());
  EXPECT_EQ(describe(b.graph)["gpus"], 0);
  b.add(VertexKind::gpu, 0);
  EXPECT_EQ(best_ring(b.graph).order, std::vector<int>{0});
  EXPECT_EQ(best_ring(b.graph).cross_package, 0);
  EXPECT_EQ(nearest_groups(b.graph), (Groups{{0}}));
  EXPECT_EQ(describe(Graph())["gpus"], 0);
}

// What a closed order crosses, counted from scratch: packages, NUMA nodes, SYS labels.
std::vector<int> crossings(const Graph& graph, const std::vector<int>& order) {
  const std::vector<int> gpus = graph.all(VertexKind::gpu);
  std::vector<int> sum(3);
  for (std::size_t i = 0; i < order.size() && order.size() > 1; ++i) {
    const int a = gpus[std::size_t(order[i])], b = gpus[std::size_t(order[(i + 1) % order.size()])];
    const bool other_package = graph.ancestor(a, VertexKind::package) != graph.ancestor(b, VertexKind::package);
    const int node = graph.ancestor(a, VertexKind::numa), other_node = graph.ancestor(b, VertexKind::numa);
    sum[0] += other_package ? 1 : 0;
    sum[1] += node != other_node || (node < 0 && other_package) ? 1 : 0;
    for (const Relation& r : graph.relations)
      if (r.a == std::min(a, b) && r.b == std::max(a, b) && r.label == "SYS") ++sum[2];
  }
  return sum;
}

std::vector<int> fewest_crossings(const Graph& graph) {
  std::vector<int> order(graph.all(VertexKind::gpu).size());
  std::iota(order.begin(), order.end(), 0);
  std::vector<int> best = crossings(graph, order);
  while (std::next_permutation(order.begin() + 1, order.end())) best = std::min(best, crossings(graph, order));
  return best;
}

TEST(Ring, OfAnyTreeCrossesTheFewestOfAllPermutations) {
  std::mt19937 random(11);
  for (int round = 0; round < 60; ++round) {
    Builder b;
    std::vector<int> places = {0};  // a GPU may hang anywhere, below the machine too
    for (int p = 0; p < 3; ++p) {
      const int package = b.add(VertexKind::package, 0);
      places.push_back(package);
      for (int n = 0; n < 2; ++n) places.push_back(b.add(VertexKind::numa, package));
    }
    const int count = 2 + int(random() % 6);
    for (int g = 0; g < count; ++g) b.add(VertexKind::gpu, places[random() % places.size()]);
    const Ring ring = best_ring(b.graph);
    const std::vector<int> counted = crossings(b.graph, ring.order);
    EXPECT_EQ(ring.cross_package, counted[0]);
    EXPECT_EQ(ring.cross_numa, counted[1]);
    EXPECT_EQ(counted, fewest_crossings(b.graph)) << "round " << round;
  }
}

TEST(Ring, OfAnyLabelsCrossesTheFewestOfAllPermutations) {
  std::mt19937 random(12);
  for (int round = 0; round < 40; ++round) {
    Builder b;
    const int packages[] = {b.add(VertexKind::package, 0), b.add(VertexKind::package, 0)};
    const int count = 4 + int(random() % 4);
    std::vector<int> gpus;
    for (int g = 0; g < count; ++g) gpus.push_back(b.add(VertexKind::gpu, packages[random() % 2]));
    const std::pair<Level, const char*> labels[] = {
        {Level::machine, "SYS"}, {Level::machine, "NV2"}, {Level::numa, "NODE"}, {Level::pci_switch, "PIX"}};
    for (int i = 0; i < count; ++i)
      for (int j = 0; j < i; ++j) {
        const auto& [level, label] = labels[random() % 4];
        b.relate(gpus[std::size_t(i)], gpus[std::size_t(j)], level, label);
      }
    const Graph graph = b.sorted();
    EXPECT_EQ(crossings(graph, best_ring(graph).order), fewest_crossings(graph)) << "round " << round;
    const Ring by_labels = label_ring(graph);
    std::vector<int> order(gpus.size());
    std::iota(order.begin(), order.end(), 0);
    int fewest = crossings(graph, order)[2];
    while (std::next_permutation(order.begin() + 1, order.end())) fewest = std::min(fewest, crossings(graph, order)[2]);
    EXPECT_EQ(by_labels.cross_label, fewest) << "round " << round;
  }
}

TEST(Ring, ShortestTourIsTheShortestOfAllPermutations) {
  std::mt19937 random(13);
  for (int round = 0; round < 30; ++round) {
    const int n = 4 + int(random() % 5);
    std::vector<std::uint64_t> costs(std::size_t(n * n));
    for (int i = 0; i < n; ++i)
      for (int j = 0; j < i; ++j) costs[std::size_t(i * n + j)] = costs[std::size_t(j * n + i)] = random() % 100;
    const auto cost = [&](int i, int j) { return costs[std::size_t(i * n + j)]; };
    const auto length = [&](const std::vector<int>& order) {
      std::uint64_t sum = 0;
      for (int i = 0; i < n; ++i) sum += cost(order[std::size_t(i)], order[std::size_t((i + 1) % n)]);
      return sum;
    };
    std::vector<int> order(std::size_t(n), 0);
    std::iota(order.begin(), order.end(), 0);
    std::uint64_t best = length(order);
    while (std::next_permutation(order.begin() + 1, order.end())) best = std::min(best, length(order));
    std::vector<int> tour = shortest_tour(n, cost);
    EXPECT_EQ(length(tour), best);
    std::sort(tour.begin(), tour.end());
    std::iota(order.begin(), order.end(), 0);
    EXPECT_EQ(tour, order);
  }
}

// 4 packages of 4 NUMA nodes of 2 switches of 4 GPUs, numbered so that neighbours in number are far apart.
TEST(Ring, OfManyGpusIsOptimalAtEveryLevel) {
  Builder b;
  std::vector<int> switches;
  for (int p = 0; p < 4; ++p) {
    const int package = b.add(VertexKind::package, 0);
    for (int n = 0; n < 4; ++n) {
      const int numa = b.add(VertexKind::numa, package);
      for (int s = 0; s < 2; ++s)
        switches.push_back(b.add(VertexKind::pci_bridge, b.add(VertexKind::host_bridge, numa)));
    }
  }
  for (int g = 0; g < 128; ++g) b.add(VertexKind::gpu, switches[std::size_t(g * 7 % 32)]);
  const Ring ring = best_ring(b.graph);
  EXPECT_EQ(ring.cross_package, 4);
  EXPECT_EQ(ring.cross_numa, 16);
  EXPECT_GT(index_ring(b.graph).cross_package, 60);
  int between_switches = 0;
  const std::vector<int> gpus = b.graph.all(VertexKind::gpu);
  for (std::size_t i = 0; i < 128; ++i)
    between_switches += b.graph.vertices[std::size_t(gpus[std::size_t(ring.order[i])])].parent !=
                                b.graph.vertices[std::size_t(gpus[std::size_t(ring.order[(i + 1) % 128])])].parent
                            ? 1
                            : 0;
  EXPECT_EQ(between_switches, 32);
  EXPECT_EQ(ring.order.front(), 0);
}

// Too many for the exact search, and links across the packages lead astray: crossings stay at the minimum.
TEST(Ring, LinksDoNotCostCrossings) {
  Builder b;
  std::vector<int> gpus;
  const int packages[] = {b.add(VertexKind::package, 0), b.add(VertexKind::package, 0)};
  for (int g = 0; g < 20; ++g) gpus.push_back(b.add(VertexKind::gpu, packages[g % 2]));
  for (int g = 0; g < 20; ++g) {
    Link link;
    link.a = gpus[std::size_t(g)];
    link.b = gpus[std::size_t((g + 1) % 20)];
    link.kind = LinkKind::xgmi;
    b.graph.links.push_back(link);
  }
  EXPECT_EQ(best_ring(b.graph).cross_package, 2);
  std::vector<int> order = best_ring(b.graph).order;
  std::sort(order.begin(), order.end());
  for (int g = 0; g < 20; ++g) EXPECT_EQ(order[std::size_t(g)], g);
}

// Of rings that cross alike, the one that runs over links: a square 0-1-3-2 within one NUMA node.
TEST(Ring, RunsOverLinksWhereThatCostsNothing) {
  Builder b;
  const int numa = b.add(VertexKind::numa, b.add(VertexKind::package, 0));
  std::vector<int> gpus;
  for (int g = 0; g < 4; ++g) gpus.push_back(b.add(VertexKind::gpu, numa));
  for (const auto& [i, j] : {std::pair(0, 1), std::pair(1, 3), std::pair(3, 2), std::pair(2, 0)}) {
    Link link;
    link.a = gpus[std::size_t(i)];
    link.b = gpus[std::size_t(j)];
    link.kind = LinkKind::nvlink;
    b.graph.links.push_back(link);
  }
  EXPECT_EQ(best_ring(b.graph).order, (std::vector<int>{0, 1, 3, 2}));
}

// The CPU side of the dual-EPYC machine: 128 cores in two packages of one NUMA node.
TEST(DualEpyc, SyntheticCpuSideHasTwoNodesInTwoPackages) {
  std::string text = read_text(std::filesystem::path(TUTTI_SOURCE_DIR) / "tests/topology/data/dual-epyc.synthetic");
  text.erase(text.find_last_not_of('\n') + 1);
  const Result<Graph> graph = read_synthetic(text, "dual-epyc");
  ASSERT_TRUE(graph.ok()) << graph.status().to_string();
  EXPECT_EQ(graph->all(VertexKind::package).size(), 2u);
  const std::vector<int> nodes = graph->all(VertexKind::numa);
  ASSERT_EQ(nodes.size(), 2u);
  EXPECT_NE(package_of(*graph, nodes[0]), package_of(*graph, nodes[1]));
  EXPECT_EQ(graph->all(VertexKind::pu).size(), 256u);
  for (const int node : nodes) EXPECT_EQ(graph->vertices[std::size_t(node)].cpus.count(), 128);
}

}  // namespace
}  // namespace tutti::topology::test
