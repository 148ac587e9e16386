#pragma once
// Explanation: every candidate for a collective with what it does and costs, which
// one is chosen and why. A value that tools print.
#include <optional>
#include <string>
#include <tutti/status.h>
#include <vector>

#include "comm/gpu_plan.h"
#include "comm/placement.h"
#include "comm/planner.h"

namespace tutti::comm {

struct Explanation {
  struct Candidate {
    std::string algorithm;
    int steps = 0;                     // longest chain of messages
    std::uint64_t bytes_on_wire = 0;   // sent by the busiest rank
    std::vector<int> hops;             // of the longest chain, by border
    int slow_link_hops = 0;            // of them across the slowest border that there is
    double predicted_us = 0;
    std::optional<double> measured_us, simulated_us;
    std::string limiting_border;       // that takes the most of the predicted time
    bool same_bits = true, canonical = false;
  };
  Collective collective = Collective::all_reduce;
  std::uint64_t bytes = 0;
  int ranks = 0;
  std::vector<std::string>
      borders;  // "host", "package", ..., "rank": those with something on either side, outermost first
  std::vector<bool> measured;          // by border: whether its price was, else it is assumed
  std::vector<Candidate> candidates;   // best first; the first is chosen
  std::string reason;
  std::string limiting_link;
  std::optional<std::uint64_t> lend_from;   // messages of so many bytes are read out of the sender's memory, on one host
  // On streams, where all GPUs reach each other's memory: best first, at assumed
  // prices. Empty: not on one host, or no such call.
  std::vector<GpuPlan> gpu;
  std::uint64_t one_shot_up_to = 0;    // bytes
  std::vector<std::string> refused;    // "hierarchical: needs groups of more than one rank and less than all"
};

// What the planner does for such a call. As Planner::plans.
// `gpus`: the ranks are GPUs of one host.
Result<Explanation> explain(Collective collective, std::uint64_t bytes, int ranks, const Placement& placement,
                            const Settings& settings, bool gpus = false);

}  // namespace tutti::comm
