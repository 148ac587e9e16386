#include "comm/placement.h"

#include <algorithm>
#include <map>
#include <tuple>

#include "comm/crowding.h"

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

int groups_in(const std::vector<int>& group_of) {
  return group_of.empty() ? 0 : *std::max_element(group_of.begin(), group_of.end()) + 1;
}

struct Measured {
  std::optional<LinkFigures> within, network;
  std::optional<ReductionFigures> reduction;
};

// The slowest of all ranks. Sets the crowding: that of the fullest host.
Measured merged(const std::vector<RankInfo>& ranks, const Settings& settings, double& crowding) {
  const auto crowding_of = crowding_of_hosts(ranks);
  Measured out;
  Figures all;
  for (const RankInfo& rank : ranks) {
    const double here = crowding_of.at(rank.host_identity);
    crowding = std::max(crowding, here);
    out.within = slower(out.within, rank.figures.link(medium_within_hosts(settings), here > 1));
    all = slower(all, rank.figures);
  }
  out.network = all.link(Medium::network, false);
  out.reduction = all.reduction;
  return out;
}

BorderPrice priced(const BorderPrice& assumed, const std::optional<LinkFigures>& measured) {
  return measured ? BorderPrice{assumed.name, measured->alpha, measured->message, measured->beta, true} : assumed;
}

BorderPrice within_hosts(const Measured& measured, bool sockets, bool crowded) {
  BorderPrice assumed = sockets ? (crowded ? kCrowdedSockets : kHostBorder) : (crowded ? kCrowdedMemory : kRankMemory);
  assumed.name = kRankMemory.name;
  return priced(assumed, measured.within);
}

void price_reductions(Prices& prices, const std::optional<ReductionFigures>& measured) {
  if (!measured) return;
  prices.gamma = measured->cached;
  prices.gamma_memory = measured->memory;
}

}  // namespace

algorithms::Request request_on(const Placement& placement, Collective collective, int ranks, const Settings& settings) {
  algorithms::Request request;
  request.collective = collective;
  request.rank_count = ranks;
  request.levels = placement.levels;
  request.order = placement.order;
  request.channels = std::max(1, settings.channels);
  return request;
}

Medium medium_within_hosts(const Settings& settings) {
  return settings.transport == "tcp" ? Medium::sockets : Medium::memory;
}

Prices prices_of_equals(const Settings& settings, double crowding, const Figures& figures) {
  Prices out;
  const Medium medium = medium_within_hosts(settings);
  const bool crowded = crowding > 1;
  out.borders = {within_hosts({figures.link(medium, crowded), {}, {}}, medium == Medium::sockets, crowded)};
  out.shares_writes = medium != Medium::sockets;
  if (const auto& within = figures.link(medium, crowded)) out.lend_from = within->lend_from;
  out.crowding = crowding;
  price_reductions(out, figures.reduction);
  return out;
}

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
  const bool sockets = medium_within_hosts(settings) == Medium::sockets;
  const std::vector<int> by_host = numbered(hosts), by_package = numbered(packages), by_node = numbered(nodes);
  Placement out;
  const Measured measured = merged(ranks, settings, out.prices.crowding);
  const BorderPrice within = within_hosts(measured, sockets, out.prices.crowding > 1);
  // What was measured is of neighbours, so a border between them and others costs no less.
  const auto divided = [&](BorderPrice assumed) {
    if (sockets) assumed = {assumed.name, within.alpha, within.message, within.beta};
    assumed.alpha = std::max(assumed.alpha, within.alpha);
    assumed.message = std::max(assumed.message, within.message);
    assumed.beta = std::max(assumed.beta, within.beta);
    return assumed;
  };
  out.prices.borders.clear();
  if (groups_in(by_host) > 1 || groups_in(by_node) > 1) {
    out.levels.push_back(by_host);
    out.prices.borders.push_back(priced(kHostBorder, measured.network));
  }
  if (groups_in(by_package) > groups_in(by_host)) {
    out.levels.push_back(by_package);
    out.prices.borders.push_back(divided(kPackageMemory));
  }
  if (groups_in(by_node) > groups_in(by_package)) {
    out.levels.push_back(by_node);
    out.prices.borders.push_back(divided(kNumaMemory));
  }
  out.prices.borders.push_back(within);
  out.prices.shares_writes = !sockets;
  if (measured.within) out.prices.lend_from = measured.within->lend_from;
  price_reductions(out.prices, measured.reduction);
  return out;
}

}  // namespace tutti::comm
