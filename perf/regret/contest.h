#pragma once
// Contest: one rank's part of timing every algorithm at every size, in interleaved rounds, over one transport. It
// measures; it neither starts ranks nor judges. All ranks must take part with the same arguments.
#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include <tutti/tutti.h>

#include "perf/regret/verdict.h"

namespace tutti::perf::regret {

struct Seat {
  int rank = 0, ranks = 1;
  std::string transport, label;            // of TUTTI_TRANSPORT; what points call it
  std::string address, key;                // empty address: as the launcher's environment says
};

// Joins the world and gives each algorithm a communicator of its own on the same engine: engines side by side would
// take each other's cores. The time of the choice is that of the same algorithm forced; algorithms that are one program
// for these ranks count as one. Sets TUTTI_TRANSPORT. `on_point` is called on all ranks; only rank 0's points count.
Status run_contest(const Seat& seat, const std::vector<std::size_t>& sizes, int rounds,
                   const std::function<void(const Point&)>& on_point);

}  // namespace tutti::perf::regret
