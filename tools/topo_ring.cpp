#include "tools/topo_ring.h"

#include <algorithm>
#include <numeric>

#include "topology/ring.h"

namespace tutti::tools {
namespace {

using topology::Graph;
using topology::VertexKind;

RingCost cost_of(const topology::Ring& ring) {
  return {ring.order, ring.cross_package, ring.cross_numa, ring.cross_label};
}

std::vector<int> numa_members(const Graph& graph) {
  const std::vector<int> nodes = graph.all(VertexKind::numa);
  std::vector<int> with_cpus;
  std::copy_if(nodes.begin(), nodes.end(), std::back_inserter(with_cpus),
               [&graph](int n) { return !graph.vertices[std::size_t(n)].cpus.empty(); });
  return with_cpus.empty() ? nodes : with_cpus;
}

RingCost numa_cost(const Graph& graph, const std::vector<int>& members, std::vector<int> order) {
  RingCost cost;
  for (std::size_t i = 0; i < order.size() && order.size() > 1; ++i) {
    const int from = members[std::size_t(order[i])], to = members[std::size_t(order[(i + 1) % order.size()])];
    cost.cross_package += topology::package_of(graph, from) != topology::package_of(graph, to);
    ++cost.cross_numa;
  }
  cost.order = std::move(order);
  return cost;
}

void choose_numa(const Graph& graph, RingChoice& out) {
  out.kind = VertexKind::numa;
  out.members = numa_members(graph);
  for (const int node : out.members) out.numbers.push_back(graph.vertices[std::size_t(node)].os_index);
  std::vector<int> order(out.members.size()), package;
  std::iota(order.begin(), order.end(), 0);
  for (const int node : out.members) package.push_back(topology::package_of(graph, node));
  std::stable_sort(order.begin(), order.end(), [&out](int a, int b) { return out.number(a) < out.number(b); });
  out.by_index = numa_cost(graph, out.members, order);
  std::stable_sort(order.begin(), order.end(),
                   [&package](int a, int b) { return package[std::size_t(a)] < package[std::size_t(b)]; });
  out.chosen = numa_cost(graph, out.members, order);
  out.packages_known = out.numa_known = std::count(package.begin(), package.end(), -1) == 0;
  const bool apart = std::adjacent_find(order.begin(), order.end(), [&](int a, int b) {
                       return package[std::size_t(a)] == package[std::size_t(b)];
                     }) == order.end();
  if (!out.packages_known || apart) return;  // groups of one tell nothing
  out.groups.emplace();
  for (std::size_t i = 0; i < order.size(); ++i) {
    if (i == 0 || package[std::size_t(order[i])] != package[std::size_t(order[i - 1])]) out.groups->emplace_back();
    out.groups->back().push_back(order[i]);
  }
}

}  // namespace

RingChoice choose_ring(const Graph& graph) {
  RingChoice out;
  out.members = graph.all(VertexKind::gpu);
  if (out.members.empty()) {
    choose_numa(graph, out);
    return out;
  }
  for (std::size_t i = 0; i < out.members.size(); ++i) {
    const int index = graph.vertices[std::size_t(out.members[i])].index;
    out.numbers.push_back(index >= 0 ? index : int(i));
  }
  if (out.members.size() > 1) out.groups = topology::nearest_groups(graph);
  out.chosen = cost_of(topology::best_ring(graph));
  out.by_index = cost_of(topology::index_ring(graph));
  out.packages_known = topology::packages_known(graph);
  out.numa_known = topology::groups_within(graph, VertexKind::numa).has_value();
  out.labelled = !graph.relations.empty();
  return out;
}

}  // namespace tutti::tools
