#pragma once
// Crowding: how many ranks of a host there are for each core that they have together. Ranks that are each tied to a core of their own (as mpirun
// and srun tie them) have together as many as there are ranks.
#include <cstdint>
#include <map>
#include <vector>

#include "comm/rank_info.h"

namespace tutti::comm {

// By RankInfo::host_identity.
std::map<std::uint64_t, double> crowding_of_hosts(const std::vector<RankInfo>& ranks);

}  // namespace tutti::comm
