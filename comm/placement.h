#pragma once
// Placement: the groups that ranks lie in, by host, package and NUMA node, and what crossing each border costs. Made
// from what all ranks know of each other, so that all plan alike.
#include <vector>

#include "comm/planner.h"
#include "comm/rank_info.h"
#include "core/config.h"

namespace tutti::comm {

// Until something is measured (profile.h). A border is crossed by all ranks of
// a group at once, so its beta is for the group.
inline constexpr BorderPrice kHostBorder{"host", 10e-6, 3e-6, 1 / 2.5e9};          // TCP
inline constexpr BorderPrice kPackageMemory{"package", 0.8e-6, 0.1e-6, 1 / 12e9};  // shared memory
inline constexpr BorderPrice kNumaMemory{"NUMA node", 0.6e-6, 0.1e-6, 1 / 15e9};
inline constexpr BorderPrice kRankMemory{"rank", 0.4e-6, 0.1e-6, 1 / 9e9};

// The same with more ranks than cores, for one rank a core: whoever waits gives its core away, and comes back late.
inline constexpr BorderPrice kCrowdedMemory{"rank", 14e-6, 2e-6, 1 / 7e9};
inline constexpr BorderPrice kCrowdedSockets{"rank", 20e-6, 25e-6, 1 / 1.3e9};

struct Placement {
  // As algorithms::Request::levels: hosts first, then those within that divide further. Empty: one group of equals.
  std::vector<std::vector<int>> levels;
  Prices prices;
  std::vector<int> order;       // as algorithms::Request::order
};

// All ranks of the placement do this; root 0, not in place.
algorithms::Request request_on(const Placement& placement, Collective collective, int ranks, const Settings& settings);

// What ranks of one host reach each other over.
Medium medium_within_hosts(const Settings& settings);
// For ranks of one host without borders between them: as measured, where `figures` say it, else assumed.
Prices prices_of_equals(const Settings& settings, double crowding, const Figures& figures = {});
Placement place_ranks(const std::vector<RankInfo>& ranks, const Settings& settings);

}  // namespace tutti::comm
