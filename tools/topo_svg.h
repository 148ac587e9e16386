#pragma once
// The machine as a picture: SVG that needs nothing beside it, for light and dark pages. Boxes are layout()'s; the ring
// is a closed path through its members, trees are thin arrows, groups are shaded, direct links are drawn while they can
// be told apart.
#include <string>

#include "topology/graph.h"

namespace tutti::tools {

std::string topo_svg(const topology::Graph& graph);

inline constexpr std::size_t kMostTreeEdges = 64;
inline constexpr std::size_t kMostDrawnLinks = 24;  // direct links between GPUs; more are told in words only

}  // namespace tutti::tools
