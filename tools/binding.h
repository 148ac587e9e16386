#pragma once
// Binding: which CPUs each rank of this host may run on, so that its memory is
// near and the planner knows where it sits. Pure.
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "topology/graph.h"

namespace tutti::tools {

enum class Bind { automatic, none, numa, core };
std::optional<Bind> bind_from(std::string_view text);   // "auto", "none", "numa", "core"

struct Binding {
  std::vector<topology::CpuSet> cpus;   // of each local rank; empty: all stay as they are
  std::string told;                     // one line; empty: nothing is bound
};

// numa: a rank sits on the NUMA node of the GPU of its number, where there is a GPU for each rank and its node is
// known; else ranks are spread over the nodes in order. core: spread over the cores in order, a run of them each; with
// more ranks than cores they share. automatic: numa where there are several nodes and ranks, else none. The machine
// holds only what this process may use.
Binding bind_ranks(const topology::Graph& machine, Bind how, int local_ranks);

// How many NUMA nodes the kernel has, for 3 us: to spare a look at the machine.
int numa_nodes(const std::string& root = "");

}  // namespace tutti::tools
