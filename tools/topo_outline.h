#pragma once
// Outline: the part of a Graph that people want to see: packages, NUMA nodes, GPUs, NICs, accelerators, GPU switches.
// Bridges stay where something branches off; others become the way of what is below them. Cores and caches are counted.
// It draws nothing.
#include <string>
#include <utility>
#include <vector>

#include "topology/graph.h"

namespace tutti::tools {

struct OutlineNode {
  int vertex = -1;
  std::vector<int> more;              // vertices like this one that share its line, in order
  std::vector<int> via;               // bridges between the node above and this one, from above
  topology::Figure speed;             // of the slowest PCI link from the node above to this one
  std::vector<OutlineNode> children;  // devices behind bridges and nodes
};

// Of the machine. Many alike are one node with `more`: all GPU switches of a place, NICs beyond kMostNics of a place,
// packages and NUMA nodes without devices beyond kMostPlaces of a place. Displays of server consoles are left out.
OutlineNode outline(const topology::Graph& graph);
inline constexpr std::size_t kMostNics = 12, kMostPlaces = 32;

// Of the accelerators that the outline leaves out: bus ids, or names.
std::vector<std::string> displays(const topology::Graph& graph);

// What is inside of a vertex and counted only. The last level of caches alone.
struct Inside {
  int cores = 0, pus = 0;
  std::vector<std::pair<std::string, int>> caches;  // ("L3 32 MB", 4)
};
Inside inside(const topology::Graph& graph, int vertex);

// Each vertex's children, in order.
std::vector<std::vector<int>> children_of(const topology::Graph& graph);

// What people call a vertex: "GPU 0", "mlx5_0 (ib0)", "bridge 0000:00:02.2". Printable.
std::string title(const topology::Graph& graph, int vertex);
std::string bus_id(const topology::Vertex& vertex);  // "" without one
std::string model(const topology::Vertex& vertex);   // "Tesla V100-SXM3-32GB", "" unless the source says
// The speed of a NIC's port or ports, unknown where the source does not tell.
topology::Figure port_speed(const topology::Graph& graph, int nic);

}  // namespace tutti::tools
