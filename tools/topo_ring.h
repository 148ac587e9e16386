#pragma once
// RingChoice: what takes part in a ring on a machine (its GPUs; without any, its NUMA nodes with CPUs), in which groups
// and in which order. GPUs' rings are topology/ring's; NUMA nodes go package by package.
#include <optional>
#include <string>
#include <vector>

#include "topology/answers.h"
#include "topology/graph.h"

namespace tutti::tools {

struct RingCost {
  std::vector<int> order;                                  // positions in RingChoice::members
  int cross_package = 0, cross_numa = 0, cross_label = 0;  // directed hops, the closing one included
};

struct RingChoice {
  topology::VertexKind kind = topology::VertexKind::gpu;  // of the members
  std::vector<int> members;                               // vertices
  std::optional<topology::Groups> groups;                 // of positions; nullopt: nearness forms none
  RingCost chosen, by_index;
  bool packages_known = false, numa_known = false, labelled = false;  // which of the costs mean something

  int number(int position) const { return numbers[std::size_t(position)]; }  // of a GPU, or the system's of a NUMA node
  std::vector<int> numbers;
};

RingChoice choose_ring(const topology::Graph& graph);

}  // namespace tutti::tools
