#pragma once
// SysfsFigures: what /sys says of devices beyond hwloc: PCI speed and width, NUMA node, speed of ports. It adds figures
// to a Graph and lists what it does not believe; it finds no devices.
#include <string>

#include "topology/graph.h"

namespace tutti::topology {

// `root` is the folder that holds sys/; "" is this machine. Files that are not there add nothing.
void add_sysfs_figures(Graph& graph, const std::string& root);

}  // namespace tutti::topology
