#include "comm/crowding.h"

#include <algorithm>

#include "topology/graph.h"

namespace tutti::comm {
namespace {

struct HostCores {
  int ranks = 0;
  topology::CpuSet cpus;      // of those ranks that say theirs
  int quota = 0;              // the largest of ranks that may use less than their CPUs; 0: none may
  int others = 0;             // the most cores of a rank that does not say its CPUs

  int count() const {
    const int all = std::max({1, others, cpus.count()});
    return quota > 0 ? std::min(all, quota) : all;
  }
};

}  // namespace

std::map<std::uint64_t, double> crowding_of_hosts(const std::vector<RankInfo>& ranks) {
  std::map<std::uint64_t, HostCores> hosts;
  for (const RankInfo& rank : ranks) {
    HostCores& host = hosts[rank.host_identity];
    ++host.ranks;
    const auto own = topology::parse_cpu_list(rank.cpus);
    if (!own || own->empty()) {
      host.others = std::max(host.others, rank.cores);
      continue;
    }
    if (rank.cores < own->count()) host.quota = std::max(host.quota, rank.cores);
    for (const auto& [first, last] : own->ranges()) host.cpus.insert(first, last);
  }
  std::map<std::uint64_t, double> out;
  for (const auto& [identity, host] : hosts) out[identity] = double(host.ranks) / host.count();
  return out;
}

}  // namespace tutti::comm
