#pragma once
// The page that `tutti topo` prints: tree, links, matrix, groups, ring, nearest NICs, notes, what was distrusted, and
// where the figures came from. It computes nothing of its own.
#include <string>

#include "topology/graph.h"

namespace tutti::tools {

std::string topo_text(const topology::Graph& graph);

// "{0 1} {2 3}": groups by the numbers of their members.
struct RingChoice;
std::string groups_text(const RingChoice& ring);
// "0 1 2 3: 2 hops between packages, 2 between NUMA nodes".
struct RingCost;
std::string order_text(const RingChoice& ring, const RingCost& cost);

}  // namespace tutti::tools
