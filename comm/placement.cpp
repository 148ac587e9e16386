#include "comm/placement.h"

#include <algorithm>
#include <map>
#include <tuple>

namespace tutti::comm {
namespace {

// Numbers the values by first appearance.
template <class Key>
std::vector<int> numbered(const std::vector<Key>& keys) {
  std::map<Key, int> number;
  std::vector<int> out;
  for (const Key& key : keys) out.push_back(number.try_emplace(key, int(number.size())).first->second);
  return out;
}

int groups_in(const std::vector<int>& group_of) { return group_of.empty() ? 0 : *std::max_element(group_of.begin(), group_of.end()) + 1; }

}  // namespace

Placement place_ranks(const std::vector<RankInfo>& ranks, const Settings& settings) {
  // A host where one rank does not know its place is not divided there.
  std::map<std::uint64_t, bool> know_package, know_numa;
  for (const RankInfo& r : ranks) {
    auto& package = know_package.try_emplace(r.host_identity, true).first->second;
    auto& numa = know_numa.try_emplace(r.host_identity, true).first->second;
    package = package && r.package >= 0;
    numa = numa && r.numa >= 0;
  }
  std::vector<std::uint64_t> hosts;
  std::vector<std::tuple<std::uint64_t, int>> packages;
  std::vector<std::tuple<std::uint64_t, int, int>> nodes;
  for (const RankInfo& r : ranks) {
    const int package = know_package[r.host_identity] ? r.package : -1, numa = know_numa[r.host_identity] ? r.numa : -1;
    hosts.push_back(r.host_identity);
    packages.emplace_back(r.host_identity, package);
    nodes.emplace_back(r.host_identity, package, numa);
  }
  const bool sockets = settings.transport == "tcp";
  const auto price = [&](BorderPrice of_memory) {
    const char* name = of_memory.name;
    if (sockets) of_memory = kHostBorder;
    of_memory.name = name;
    return of_memory;
  };
  Placement out;
  out.prices.borders.clear();
  const std::vector<int> by_host = numbered(hosts), by_package = numbered(packages), by_node = numbered(nodes);
  if (groups_in(by_host) > 1 || groups_in(by_node) > 1) {
    out.levels.push_back(by_host);
    out.prices.borders.push_back(kHostBorder);
  }
  if (groups_in(by_package) > groups_in(by_host)) {
    out.levels.push_back(by_package);
    out.prices.borders.push_back(price(kPackageMemory));
  }
  if (groups_in(by_node) > groups_in(by_package)) {
    out.levels.push_back(by_node);
    out.prices.borders.push_back(price(kNumaMemory));
  }
  out.prices.borders.push_back(price(kRankMemory));
  out.prices.shares_writes = !sockets;
  std::map<int, int> ranks_on;
  for (const int host : by_host) ++ranks_on[host];
  for (std::size_t r = 0; r < ranks.size(); ++r)
    out.prices.crowding = std::max(out.prices.crowding, double(ranks_on[by_host[r]]) / std::max(1, ranks[r].cores));
  // With more ranks than cores a wait gives the core to another rank.
  if (out.prices.crowding > 1 && !sockets) out.prices.borders.back().alpha = std::max(out.prices.borders.back().alpha, 2e-6);
  return out;
}

}  // namespace tutti::comm
