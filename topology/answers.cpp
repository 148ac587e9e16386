#include "topology/answers.h"

#include <algorithm>
#include <charconv>
#include <functional>
#include <set>

namespace tutti::topology {
namespace {

const Vertex& at(const Graph& graph, int vertex) { return graph.vertices[std::size_t(vertex)]; }

const Relation* relation_between(const Graph& graph, int a, int b) {
  const auto pair = std::minmax(a, b);
  const auto found = std::lower_bound(
      graph.relations.begin(), graph.relations.end(), pair,
      [](const Relation& r, const auto& p) { return r.a != p.first ? r.a < p.first : r.b < p.second; });
  return found != graph.relations.end() && found->a == pair.first && found->b == pair.second ? &*found : nullptr;
}

Level level_of_ancestor(const Graph& graph, int vertex) {
  for (int v = vertex; v >= 0; v = at(graph, v).parent) {
    switch (at(graph, v).kind) {
      case VertexKind::gpu:
      case VertexKind::nic:
      case VertexKind::accelerator:
      case VertexKind::gpu_switch: return Level::same_device;
      case VertexKind::pci_bridge: return Level::pci_switch;
      case VertexKind::host_bridge: return Level::host_bridge;
      case VertexKind::numa: return Level::numa;
      case VertexKind::package:
        return graph.ancestor(v, VertexKind::numa) >= 0 ? Level::numa : Level::package;  // a node of several packages
      case VertexKind::machine: return Level::machine;
      case VertexKind::cache:
      case VertexKind::core:
      case VertexKind::pu: break;  // inside of a NUMA node or package, which comes next
    }
  }
  return Level::machine;
}

int link_count(const std::string& label) {
  int count = 1;
  if (label.size() > 2) std::from_chars(label.data() + 2, label.data() + label.size(), count);
  return count;
}

// Links above all, by their number; then the level, PIX above PXB.
int order_of(const Relation& relation) {
  if (names_link(relation.label)) return 1000 + std::clamp(link_count(relation.label), 0, 1000);
  return (int(Level::machine) - int(relation.level)) * 10 + (relation.label == "PXB" ? 0 : 1);
}

Nearness related(const Graph& graph, const Relation& relation, int a, int b) {
  const int numa = numa_of(graph, a), other = numa_of(graph, b);
  const bool vague =
      relation.label == "PCIE" && relation.level == Level::machine;  // rocm-smi: "not XGMI" and nothing else
  if (relation.level == Level::machine && !names_link(relation.label)) {
    if (numa >= 0 && numa == other)
      return {Level::numa, (int(Level::machine) - int(Level::numa)) * 10, to_string(Level::numa)};
    if (vague && (numa < 0 || other < 0)) return {Level::machine, -1, relation.label};
  }
  return {relation.level, order_of(relation), relation.label};
}

// The classes of a relation between 0..count-1; nullopt where it is not transitive.
std::optional<Groups> cliques(int count, const std::function<bool(int, int)>& related) {
  Groups groups;
  std::vector<int> group_of(std::size_t(count), -1);
  for (int i = 0; i < count; ++i) {
    for (int j = 0; j < i && group_of[std::size_t(i)] < 0; ++j)
      if (related(j, i)) group_of[std::size_t(i)] = group_of[std::size_t(j)];
    if (group_of[std::size_t(i)] < 0) {
      group_of[std::size_t(i)] = int(groups.size());
      groups.emplace_back();
    }
    groups[std::size_t(group_of[std::size_t(i)])].push_back(i);
  }
  for (int i = 0; i < count; ++i)
    for (int j = 0; j < i; ++j)
      if (related(j, i) != (group_of[std::size_t(i)] == group_of[std::size_t(j)])) return std::nullopt;
  return groups;
}

std::vector<std::vector<Nearness>> between_gpus(const Graph& graph) {
  const std::vector<int> gpus = graph.all(VertexKind::gpu);
  std::vector<std::vector<Nearness>> table(gpus.size(), std::vector<Nearness>(gpus.size()));
  for (std::size_t i = 0; i < gpus.size(); ++i)
    for (std::size_t j = 0; j < gpus.size(); ++j)
      if (i != j) table[i][j] = nearness(graph, gpus[i], gpus[j]);
  return table;
}

bool all_known(const std::vector<std::vector<Nearness>>& table) {
  for (std::size_t i = 0; i < table.size(); ++i)
    for (std::size_t j = 0; j < i; ++j)
      if (!table[i][j].known()) return false;
  return true;
}

// A package that was only guessed makes nothing near.
Level farthest_near(const Graph& graph) {
  return packages_inferred(graph) || !graph.relations.empty() ? Level::numa : Level::package;
}

// For each GPU the candidates nearest to it among those not farther than `limit`.
std::vector<std::vector<int>> nearest(const Graph& graph, const std::vector<int>& gpus,
                                      const std::vector<int>& candidates, Level limit) {
  std::vector<std::vector<int>> out(gpus.size());
  for (std::size_t i = 0; i < gpus.size(); ++i) {
    int best = -1;
    for (std::size_t j = 0; j < candidates.size(); ++j) {
      if (candidates[j] == gpus[i]) continue;
      const Nearness n = nearness(graph, gpus[i], candidates[j]);
      const bool near = n.known() && (n.level <= limit || names_link(n.label));
      if (!near || n.order < best) continue;
      if (n.order > best) out[i].clear();
      best = n.order;
      out[i].push_back(int(j));
    }
  }
  return out;
}

// With a row or cell missing, what is nearest is not known; a GPU that lacks one is left without.
void drop_incomplete(const Graph& graph, const std::vector<int>& gpus, const std::vector<int>& others,
                     std::vector<std::vector<int>>& near) {
  if (!graph.truncated) return;
  for (std::size_t i = 0; i < gpus.size(); ++i)
    for (const int other : others)
      if (other != gpus[i] && !nearness(graph, gpus[i], other).known()) near[i].clear();
}

std::vector<std::vector<int>> nearest_nics_where(const Graph& graph, bool rdma_only) {
  const std::vector<int> gpus = graph.all(VertexKind::gpu), nics = graph.all(VertexKind::nic);
  std::vector<int> candidates, position;
  for (std::size_t j = 0; j < nics.size(); ++j) {
    const Vertex& nic = at(graph, nics[j]);
    if ((!nic.pci && graph.relations.empty()) || (rdma_only && nic.verbs_names.empty())) continue;
    candidates.push_back(nics[j]);
    position.push_back(int(j));
  }
  std::vector<std::vector<int>> near = nearest(graph, gpus, candidates, farthest_near(graph));
  drop_incomplete(graph, gpus, candidates, near);
  for (auto& list : near)
    for (int& nic : list) nic = position[std::size_t(nic)];
  return near;
}

std::optional<Groups> label_groups(const std::vector<std::vector<Nearness>>& table) {
  if (!all_known(table)) return std::nullopt;
  bool linked = false;
  int best = 0;
  for (std::size_t i = 0; i < table.size(); ++i)
    for (std::size_t j = 0; j < i; ++j) {
      linked = linked || names_link(table[i][j].label);
      if (table[i][j].level != Level::machine) best = std::max(best, table[i][j].order);
    }
  return cliques(int(table.size()), [&](int i, int j) {
    const Nearness& n = table[std::size_t(i)][std::size_t(j)];
    return linked ? names_link(n.label) : n.level != Level::machine && n.order == best;
  });
}

}  // namespace

std::string to_string(Level level) {
  switch (level) {
    case Level::same_device: return "SAMEDEV";
    case Level::pci_switch: return "SWITCH";
    case Level::host_bridge: return "HOSTBRIDGE";
    case Level::numa: return "NUMA";
    case Level::package: return "PACKAGE";
    case Level::machine: break;
  }
  return "MACHINE";
}

bool names_link(const std::string& label) {
  if (label == "XGMI" || label == "MX") return true;
  if (label.size() < 3 || (label.compare(0, 2, "NV") != 0 && label.compare(0, 2, "MX") != 0)) return false;
  return std::all_of(label.begin() + 2, label.end(), [](char c) { return c >= '0' && c <= '9'; });
}

bool names_socket_crossing(const std::string& label) { return label == "SYS" || label == "SOC"; }

// Parents come before children, so the later of two vertices is never above the other.
int common_ancestor(const Graph& graph, int a, int b) {
  while (a != b && a >= 0 && b >= 0) (a > b ? a : b) = at(graph, std::max(a, b)).parent;
  return a == b ? a : -1;
}

Nearness nearness(const Graph& graph, int a, int b) {
  if (a == b) return {Level::same_device, int(graph.vertices.size()) + 2000, to_string(Level::same_device)};
  if (!graph.relations.empty()) {
    const Relation* relation = relation_between(graph, a, b);
    return relation ? related(graph, *relation, a, b) : Nearness{};
  }
  const int above = common_ancestor(graph, a, b);
  const bool same_function =
      at(graph, a).pci && at(graph, b).pci && at(graph, a).pci->address == at(graph, b).pci->address;
  const Level level = same_function ? Level::same_device : level_of_ancestor(graph, above);
  return {level, same_function ? int(graph.vertices.size()) : std::max(above, 0), to_string(level)};
}

Level level_between(const Graph& graph, int a, int b) { return nearness(graph, a, b).level; }

int package_of(const Graph& graph, int vertex) { return graph.ancestor(vertex, VertexKind::package); }

int numa_of(const Graph& graph, int vertex) {
  const int above = graph.ancestor(vertex, VertexKind::numa);
  if (above >= 0 || at(graph, vertex).numa < 0) return above;
  for (std::size_t v = 0; v < graph.vertices.size(); ++v)
    if (graph.vertices[v].kind == VertexKind::numa && graph.vertices[v].os_index == at(graph, vertex).numa)
      return int(v);
  return -1;
}

bool packages_known(const Graph& graph) {
  std::set<int> numa_nodes;
  bool all_in_packages = true;
  for (const int gpu : graph.all(VertexKind::gpu)) {
    numa_nodes.insert(numa_of(graph, gpu));
    all_in_packages = all_in_packages && package_of(graph, gpu) >= 0;
  }
  return all_in_packages || (numa_nodes.size() == 1 && *numa_nodes.begin() >= 0);
}

bool packages_inferred(const Graph& graph) {
  return std::any_of(graph.vertices.begin(), graph.vertices.end(),
                     [](const Vertex& v) { return v.kind == VertexKind::package && v.os_index < 0; });
}

std::optional<Groups> groups_at(const Graph& graph, Level level) {
  const std::vector<int> gpus = graph.all(VertexKind::gpu);
  const auto table = between_gpus(graph);
  if (!all_known(table)) return std::nullopt;
  return cliques(int(gpus.size()), [&](int i, int j) {
    const int a = gpus[std::size_t(i)], b = gpus[std::size_t(j)];
    if (level == Level::package && package_of(graph, a) != package_of(graph, b))
      return false;  // one NUMA node, two packages
    return table[std::size_t(i)][std::size_t(j)].level <= level;
  });
}

std::optional<Groups> groups_within(const Graph& graph, VertexKind kind) {
  std::vector<int> owner;
  for (const int gpu : graph.all(VertexKind::gpu))
    owner.push_back(kind == VertexKind::numa ? numa_of(graph, gpu) : graph.ancestor(gpu, kind));
  if (std::count(owner.begin(), owner.end(), -1) > 0) return std::nullopt;
  return cliques(int(owner.size()), [&](int i, int j) { return owner[std::size_t(i)] == owner[std::size_t(j)]; });
}

std::optional<Groups> groups_by_cpus(const Graph& graph) {
  const std::vector<int> gpus = graph.all(VertexKind::gpu);
  for (const int gpu : gpus)
    if (at(graph, gpu).cpus.empty()) return std::nullopt;
  return cliques(int(gpus.size()), [&](int i, int j) {
    return at(graph, gpus[std::size_t(i)]).cpus == at(graph, gpus[std::size_t(j)]).cpus;
  });
}

std::optional<Groups> groups_by_label(const Graph& graph, const std::string& worst_label) {
  const auto table = between_gpus(graph);
  if (!all_known(table)) return std::nullopt;
  int worst = -1;
  for (const auto& row : table)
    for (const Nearness& n : row)
      if (n.label == worst_label) worst = n.order;
  return cliques(int(table.size()),
                 [&](int i, int j) { return worst >= 0 && table[std::size_t(i)][std::size_t(j)].order >= worst; });
}

std::optional<Groups> nearest_groups(const Graph& graph) {
  if (!graph.relations.empty()) return label_groups(between_gpus(graph));
  const std::vector<std::vector<int>> near = nearest_gpus(graph);
  const auto lists = [&near](int i, int j) {
    return std::count(near[std::size_t(i)].begin(), near[std::size_t(i)].end(), j) > 0;
  };
  for (int i = 0; i < int(near.size()); ++i)
    for (const int j : near[std::size_t(i)])
      if (!lists(j, i)) return std::nullopt;
  return cliques(int(near.size()), lists);
}

std::vector<std::vector<int>> nearest_gpus(const Graph& graph) {
  const std::vector<int> gpus = graph.all(VertexKind::gpu);
  std::vector<std::vector<int>> near = nearest(graph, gpus, gpus, farthest_near(graph));
  drop_incomplete(graph, gpus, gpus, near);
  return near;
}

std::vector<std::vector<int>> nearest_nics(const Graph& graph) { return nearest_nics_where(graph, false); }
std::vector<std::vector<int>> nearest_rdma_nics(const Graph& graph) { return nearest_nics_where(graph, true); }

std::vector<std::vector<int>> package_nics(const Graph& graph) {
  const std::vector<int> gpus = graph.all(VertexKind::gpu), nics = graph.all(VertexKind::nic);
  std::vector<std::vector<int>> out(gpus.size());
  for (std::size_t i = 0; i < gpus.size(); ++i)
    for (std::size_t j = 0; j < nics.size(); ++j) {
      const int package = package_of(graph, gpus[i]);
      if (package >= 0 && package_of(graph, nics[j]) == package && (at(graph, nics[j]).pci || !graph.relations.empty()))
        out[i].push_back(int(j));
    }
  return out;
}

}  // namespace tutti::topology
