#pragma once
// Trees: the way that sums go in a small all_reduce among a ring's members, as the planner chooses it for this machine
// and the algorithm's schedules have it. Results come back the same way.
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tools/topo_ring.h"

namespace tutti::tools {

struct Trees {
  std::string algorithm;
  struct Edge {
    int from = 0, to = 0;   // positions in RingChoice::members; `to` adds up what `from` sends
    auto operator<=>(const Edge&) const = default;
  };
  std::vector<Edge> edges;  // sorted, each once
  std::string hops;         // "2 between packages, 4 between GPUs on the longest way": messages there and back
};

inline constexpr std::uint64_t kTreesBytes = 64 << 10;
inline constexpr std::size_t kMostTreeMembers = 64;

// nullopt: fewer than two members, or more than kMostTreeMembers.
std::optional<Trees> choose_trees(const topology::Graph& graph, const RingChoice& ring);

// "tree for 64K: 4 between GPUs on the longest way; sums go 1>0 3>0 2-3"; -: both ways.
std::string trees_text(const RingChoice& ring, const Trees& trees);

}  // namespace tutti::tools
