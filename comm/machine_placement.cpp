#include "comm/machine_placement.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "topology/answers.h"
#include "topology/ring.h"

namespace tutti::comm {
namespace {

using topology::Graph;
using topology::Level;
using topology::LinkKind;
using topology::VertexKind;

// Assumed where the source gives no figure. PCI Express 4.0 x16 between GPUs without links of their own: what a pair
// gets inside a NUMA node, and through the link between packages.
constexpr BorderPrice kInside{"GPU", 2e-6, 0.5e-6, 1 / 24e9};
constexpr BorderPrice kSwitches{"PCIe switch", 2.5e-6, 0.5e-6, 1 / 24e9};
constexpr BorderPrice kNodes{"NUMA node", 3e-6, 0.5e-6, 1 / 20e9};
constexpr BorderPrice kPackages{"package", 4e-6, 0.5e-6, 1 / 16e9};
constexpr double kGpuGamma = 1 / 500e9;     // seconds a byte of operands, in the GPU's memory
constexpr BorderPrice kLinked{"GPU", 1.5e-6, 0.5e-6, 1 / 100e9};

// By device: groups of one level, numbered.
std::optional<std::vector<int>> groups_of(const std::optional<topology::Groups>& groups, std::size_t devices) {
  if (!groups) return std::nullopt;
  std::vector<int> out(devices, -1);
  for (std::size_t g = 0; g < groups->size(); ++g)
    for (const int device : (*groups)[g]) out[std::size_t(device)] = int(g);
  return std::count(out.begin(), out.end(), -1) ? std::nullopt : std::optional(out);
}

struct Grouping {
  std::vector<int> of;            // by device
  BorderPrice price;
};

bool refines(const std::vector<int>& fine, const std::vector<int>& coarse) {
  for (std::size_t a = 0; a < fine.size(); ++a)
    for (std::size_t b = 0; b < a; ++b)
      if (fine[a] == fine[b] && coarse[a] != coarse[b]) return false;
  return true;
}

int count_of(const std::vector<int>& groups) {
  return groups.empty() ? 0 : *std::max_element(groups.begin(), groups.end()) + 1;
}

// Groupings that divide, each within the one before; at most `most`.
std::vector<Grouping> nested(std::vector<Grouping> candidates, std::size_t devices, std::size_t most) {
  std::vector<Grouping> out;
  std::vector<int> around(devices, 0);
  for (Grouping& g : candidates) {
    const int groups = count_of(g.of);
    if (out.size() == most || groups <= count_of(around) || groups == int(devices) || !refines(g.of, around)) continue;
    around = g.of;
    out.push_back(std::move(g));
  }
  return out;
}

// Bytes a second of the slowest link of that kind which ends at a GPU; 0: none.
double slowest(const Graph& graph, LinkKind kind) {
  double least = 0;
  const auto is_gpu = [&](int vertex) {
    return vertex >= 0 && graph.vertices[std::size_t(vertex)].kind == VertexKind::gpu;
  };
  for (const auto& link : graph.links) {
    if (link.kind == kind && (is_gpu(link.a) || is_gpu(link.b)) && link.bandwidth.known())
      least = least == 0 ? link.bandwidth.value : std::min(least, link.bandwidth.value);
  }
  return least;
}

struct Devices {
  std::string name;
  std::size_t count = 0;
  std::vector<int> ring;             // of devices, begun where it enters a package; empty: in order
  std::vector<Grouping> groupings;   // outermost first
  BorderPrice inside;
};

// The best ring, cut where it comes from another package: between hosts it is open there.
std::vector<int> ring_of(const Graph& graph, const std::vector<int>& gpus) {
  std::vector<int> ring = topology::best_ring(graph).order;
  const auto package = [&](int position) { return topology::package_of(graph, gpus[std::size_t(position)]); };
  for (std::size_t i = 0; i < ring.size(); ++i)
    if (package(ring[i]) != package(ring[(i + ring.size() - 1) % ring.size()])) {
      std::rotate(ring.begin(), ring.begin() + std::ptrdiff_t(i), ring.end());
      break;
    }
  return ring;
}

Devices gpus_of(const Graph& graph) {
  const std::vector<int> gpus = graph.all(VertexKind::gpu);
  Devices out{"GPU", gpus.size(), ring_of(graph, gpus), {}, kInside};
  if (const double pci = slowest(graph, LinkKind::pci)) out.inside.beta = 1 / pci;
  // All linked to all: no border matters.
  const bool linked = gpus.size() > 1 && std::all_of(gpus.begin(), gpus.end(), [&](int a) {
                        return std::all_of(gpus.begin(), gpus.end(), [&](int b) {
                          return a == b || topology::names_link(topology::nearness(graph, a, b).label);
                        });
                      });
  if (linked) {
    out.inside = kLinked;
    for (const LinkKind kind : {LinkKind::nvlink, LinkKind::xgmi})
      if (const double rate = slowest(graph, kind)) out.inside.beta = 1 / rate;
    return out;
  }
  std::vector<Grouping> candidates;
  const auto add = [&](const std::optional<topology::Groups>& groups, BorderPrice price) {
    if (auto of = groups_of(groups, gpus.size())) candidates.push_back({std::move(*of), price});
  };
  add(topology::groups_within(graph, VertexKind::package), kPackages);
  add(topology::groups_within(graph, VertexKind::numa), kNodes);
  add(topology::groups_at(graph, Level::pci_switch), kSwitches);
  out.groupings = nested(std::move(candidates), gpus.size(), algorithms::kMaxLevels - 1);
  // Two NUMA nodes and nothing told of packages: the border between them is the slow one.
  if (!out.groupings.empty() && out.groupings[0].price.name == kNodes.name && !topology::packages_known(graph))
    out.groupings[0].price.beta = kPackages.beta;
  return out;
}

Devices cores_of(const Graph& graph) {
  std::vector<int> cores = graph.all(VertexKind::core);
  if (cores.empty()) cores = graph.all(VertexKind::pu);
  Devices out{"CPU", std::max<std::size_t>(1, cores.size()), {}, {}, BorderPrice{}};
  std::vector<Grouping> candidates;
  for (const auto& [kind, price] :
       {std::pair{VertexKind::package, kPackageMemory}, std::pair{VertexKind::numa, kNumaMemory}}) {
    std::vector<int> of, seen;
    for (const int core : cores) {
      int at = graph.ancestor(core, kind);
      if (at < 0 && kind == VertexKind::numa) {         // hwloc hangs NUMA nodes beside the cores
        for (const int node : graph.all(kind))
          if (graph.vertices[std::size_t(node)].cpus.intersects(graph.vertices[std::size_t(core)].cpus)) at = node;
      }
      const auto known = std::find(seen.begin(), seen.end(), at);
      of.push_back(int(known - seen.begin()));
      if (known == seen.end()) seen.push_back(at);
    }
    if (!of.empty()) candidates.push_back({std::move(of), price});
  }
  out.groupings = nested(std::move(candidates), out.count, algorithms::kMaxLevels - 1);
  return out;
}

}  // namespace

Result<MachinePlacement> place_on(const Graph& machine, int ranks, int hosts, const Settings& settings,
                                  const Figures& figures) {
  if (hosts < 1) return Status(Code::invalid_argument, fmt::format("{} hosts: wanted at least one", hosts));
  if (ranks < hosts)
    return Status(Code::invalid_argument,
                  fmt::format("{} ranks on {} hosts: wanted at least one a host", ranks, hosts));
  const Devices devices = machine.all(VertexKind::gpu).size() > 1 ? gpus_of(machine) : cores_of(machine);
  MachinePlacement out;
  out.device = devices.name;
  out.per_host = (ranks + hosts - 1) / hosts;
  const auto host_of = [&](int rank) { return int(std::int64_t(rank) * hosts / ranks); };
  std::vector<int> first(std::size_t(hosts), ranks), on_host(std::size_t(hosts), 0);
  for (int r = 0; r < ranks; ++r) {
    first[std::size_t(host_of(r))] = std::min(first[std::size_t(host_of(r))], r);
    ++on_host[std::size_t(host_of(r))];
  }
  // The device of a rank: one each while there are enough, GPUs by number and
  // cores spread out; else shared by neighbours.
  const auto device_of = [&](int rank) {
    const std::size_t host = std::size_t(host_of(rank)), local = std::size_t(rank - first[host]),
                      all = std::size_t(on_host[host]);
    if (devices.name == "GPU" && all <= devices.count) return local;
    return local * devices.count / all;
  };
  std::vector<int> by_host;
  for (int r = 0; r < ranks; ++r) by_host.push_back(host_of(r));
  std::vector<std::pair<std::vector<int>, BorderPrice>> levels = {{by_host, kHostBorder}};
  for (const Grouping& g : devices.groupings) {
    std::vector<int> of;
    std::map<std::pair<int, int>, int> number;   // by host, group there
    for (int r = 0; r < ranks; ++r)
      of.push_back(number.try_emplace({host_of(r), g.of[device_of(r)]}, int(number.size())).first->second);
    if (count_of(of) > count_of(levels.back().first)) levels.emplace_back(std::move(of), g.price);
  }
  Prices& prices = out.placement.prices;
  prices = prices_of_equals(settings, std::max(1.0, double(out.per_host) / double(devices.count)), figures);
  if (devices.name == "GPU") {
    prices.borders = {devices.inside};
    prices.shares_writes = false;
    prices.gamma = prices.gamma_memory = kGpuGamma;
  }
  if (!devices.ring.empty()) {
    std::vector<int> position(devices.count);
    for (std::size_t i = 0; i < devices.ring.size(); ++i) position[std::size_t(devices.ring[i])] = int(i);
    for (int r = 0; r < ranks; ++r) out.placement.order.push_back(r);
    std::stable_sort(out.placement.order.begin(), out.placement.order.end(), [&](int a, int b) {
      return std::pair(host_of(a), position[device_of(a)]) < std::pair(host_of(b), position[device_of(b)]);
    });
  }
  if (hosts == 1 && levels.size() == 1) return out;
  std::vector<BorderPrice> outer;
  for (auto& [of, price] : levels) {
    out.placement.levels.push_back(std::move(of));
    outer.push_back(price);
  }
  prices.borders.insert(prices.borders.begin(), outer.begin(), outer.end());
  return out;
}

}  // namespace tutti::comm
