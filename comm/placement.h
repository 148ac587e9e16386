#pragma once
// Placement: the groups that ranks lie in, by host, package and NUMA node, and what crossing each border costs. Made from what
// all ranks know of each other, so that all plan alike.
#include <vector>

#include "comm/planner.h"
#include "comm/rank_info.h"
#include "core/config.h"

namespace tutti::comm {

struct Placement {
  // As algorithms::Request::levels: hosts first, then those within that divide further. Empty: one group of equals.
  std::vector<std::vector<int>> levels;
  Prices prices;
};

Placement place_ranks(const std::vector<RankInfo>& ranks, const Settings& settings);

}  // namespace tutti::comm
