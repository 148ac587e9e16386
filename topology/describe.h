#pragma once
// describe: everything that answers.h says of a Graph, as JSON with documented keys (docs/topology.md). It computes
// nothing of its own. A key that the graph cannot tell is left out. GPUs are named by Vertex::index, NICs by verbs
// name, network name or bus id.
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "topology/graph.h"

namespace tutti::topology {

nlohmann::json describe(const Graph& graph);

// What people call it: a NIC's verbs names, else its network names, else its bus id, else Vertex::name.
std::vector<std::string> names_of(const Vertex& nic);

// Notes that begin so say what the packages were inferred from.
inline constexpr char kSocketsNote[] = "sockets: ";

}  // namespace tutti::topology
