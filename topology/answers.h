#pragma once
// Answers: what a Graph means for communication. Pure functions of the graph.
//
// Levels of nearness follow the tree: the kind of the deepest common ancestor; labels (Graph::relations) stand above it.
#include <optional>
#include <string>
#include <vector>

#include "topology/graph.h"

namespace tutti::topology {

Level level_between(const Graph& graph, int a, int b);
std::string to_string(Level level);                           // "SWITCH", "NUMA", ...

// Partition of GPUs (as positions in Graph::all(gpu)); nullopt: nearness is not transitive there.
using Groups = std::vector<std::vector<int>>;
std::optional<Groups> groups_at(const Graph& graph, Level level);
std::optional<Groups> nearest_groups(const Graph& graph);     // mutual nearest; nullopt where it is not mutual

// For each GPU the others (NICs) with the best relation. NICs only up to Level::package; without a PCI device never.
std::vector<std::vector<int>> nearest_gpus(const Graph& graph);
std::vector<std::vector<int>> nearest_nics(const Graph& graph);

// A closed ring over all GPUs that crosses packages the fewest times, then NUMA nodes, then host bridges, then switches.
struct Ring {
  std::vector<int> order;            // positions in Graph::all(gpu)
  int cross_package = 0, cross_numa = 0;                      // directed hops, the one that closes the ring included
};
Ring best_ring(const Graph& graph);
Ring index_ring(const Graph& graph);                          // 0, 1, 2, ... and what it costs

}  // namespace tutti::topology
