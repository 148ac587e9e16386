#pragma once
// Answers: what a Graph means for communication. Pure functions of the graph; they print nothing and decide nothing.
//
// Levels of nearness follow the tree: the kind of the deepest common ancestor. Labels (Graph::relations) stand above
// it, except that a label which puts two devices of one NUMA node apart (SYS) gives way to the NUMA node. Devices are
// named by position: the i-th of Graph::all(gpu) or Graph::all(nic).
#include <optional>
#include <string>
#include <vector>

#include "topology/graph.h"
#include "topology/ring.h"

namespace tutti::topology {

// How near two vertices are, comparable between pairs that share a vertex.
struct Nearness {
  Level level = Level::machine;
  int order = -1;     // the greater the nearer; -1: the source does not tell
  std::string label;  // as printed, or the level's name
  bool known() const { return order >= 0; }
};
Nearness nearness(const Graph& graph, int a, int b);
Level level_between(const Graph& graph, int a, int b);
std::string to_string(Level level);                     // "SWITCH", "NUMA", ...
int common_ancestor(const Graph& graph, int a, int b);  // -1: none

// NV4, XGMI, MX: the devices' own link, whatever the PCI tree looks like. SYS, SOC: through the link between sockets.
bool names_link(const std::string& label);
bool names_socket_crossing(const std::string& label);

int package_of(const Graph& graph, int vertex);  // the vertex that is its package, -1: not known or not one
int numa_of(const Graph& graph, int vertex);     // the vertex that is its NUMA node, -1: not known
bool packages_known(const Graph& graph);         // every GPU has one, or all share a NUMA node
bool packages_inferred(const Graph& graph);      // not in the source; Graph::notes has the reason

// Partition of GPUs; nullopt: nearness is not transitive there, or not known.
using Groups = std::vector<std::vector<int>>;
std::optional<Groups> groups_at(const Graph& graph, Level level);
std::optional<Groups> groups_within(const Graph& graph, VertexKind kind);  // by package or NUMA node, labels aside
std::optional<Groups> groups_by_cpus(const Graph& graph);                  // by equal CPU affinity
std::optional<Groups> groups_by_label(const Graph& graph, const std::string& worst_label);
// Mutual nearest; with labels: cliques of linked GPUs where there are links, else of the best label.
std::optional<Groups> nearest_groups(const Graph& graph);

// For each GPU the others (NICs) with the best relation up to the package, or up to the NUMA node where packages are
// inferred. A NIC without a PCI device or a label is never near.
std::vector<std::vector<int>> nearest_gpus(const Graph& graph);
std::vector<std::vector<int>> nearest_nics(const Graph& graph);
std::vector<std::vector<int>> nearest_rdma_nics(const Graph& graph);  // only NICs with a verbs name
std::vector<std::vector<int>> package_nics(const Graph& graph);       // all NICs of the GPU's package

}  // namespace tutti::topology
