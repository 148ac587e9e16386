#pragma once
// Placement: the groups that ranks lie in, by host, package and NUMA node, and what crossing each border costs. Made from what
// all ranks know of each other, so that all plan alike.
#include <vector>

#include "comm/planner.h"
#include "comm/rank_info.h"
#include "core/config.h"

namespace tutti::comm {

// Defaults until something is measured. A border is crossed by all ranks of a group at once, so its beta is for the group.
inline constexpr BorderPrice kHostBorder{"host", 10e-6, 3e-6, 1 / 2.5e9};          // TCP
inline constexpr BorderPrice kPackageMemory{"package", 0.8e-6, 0.1e-6, 1 / 12e9};  // shared memory
inline constexpr BorderPrice kNumaMemory{"NUMA node", 0.6e-6, 0.1e-6, 1 / 15e9};
inline constexpr BorderPrice kRankMemory{"rank", 0.4e-6, 0.1e-6, 1 / 9e9};

struct Placement {
  // As algorithms::Request::levels: hosts first, then those within that divide further. Empty: one group of equals.
  std::vector<std::vector<int>> levels;
  Prices prices;
};

Placement place_ranks(const std::vector<RankInfo>& ranks, const Settings& settings);

}  // namespace tutti::comm
