#pragma once
// Ring: an order of all GPUs, closed, that crosses slow links the fewest times. It knows the graph's levels and links,
// not bytes.
#include <functional>
#include <vector>

#include "topology/graph.h"

namespace tutti::topology {

struct Ring {
  std::vector<int> order;                 // positions in Graph::all(gpu)
  int cross_package = 0, cross_numa = 0;  // directed hops, the one that closes the ring included
  int cross_affinity = 0;                 // hops between GPUs of different CPU affinity
  int cross_label = 0;                    // hops labelled SYS or SOC
};

// The fewest hops between packages, then NUMA nodes, then labelled SYS, then without a direct link, then between host
// bridges, then between switches. Optimal where the graph is a tree, and up to kExactRing GPUs in any graph; beyond
// that improved from the tree's order. Starts with GPU 0.
Ring best_ring(const Graph& graph);
Ring index_ring(const Graph& graph);     // 0, 1, 2, ... and what it costs
Ring label_ring(const Graph& graph);     // the fewest hops labelled SYS or SOC first, then as best_ring
Ring affinity_ring(const Graph& graph);  // the fewest hops between CPU affinities first

inline constexpr int kExactRing = 14;  // 2^13 * 13 * 13 steps: milliseconds

// A shortest closed tour over 0..count-1, count <= kExactRing, by dynamic programming over subsets (Held and Karp
// 1962).
std::vector<int> shortest_tour(int count, const std::function<std::uint64_t(int, int)>& cost);

}  // namespace tutti::topology
