#pragma once
// The placement of ranks that do not run yet: on the devices of a machine that is described by a Graph, the same on
// several hosts. For explaining and simulating; ranks that run are placed by what they say of themselves (placement.h).
#include <string>
#include <tutti/status.h>

#include "comm/placement.h"
#include "topology/graph.h"

namespace tutti::comm {

struct MachinePlacement {
  Placement placement;
  std::string device;        // what a rank sits on: "GPU", "CPU"
  int per_host = 0;          // ranks of a host, but for the last ones where it does not divide
};

// Ranks in order, host after host, on GPUs where the machine has some, else spread over its cores in order. More ranks
// than devices share them, neighbours first. Between CPUs `figures` count as they do for ranks that run; between GPUs
// what the graph says. invalid_argument: fewer ranks than hosts, or none.
Result<MachinePlacement> place_on(const topology::Graph& machine, int ranks, int hosts, const Settings& settings = {},
                                  const Figures& figures = {});

}  // namespace tutti::comm
