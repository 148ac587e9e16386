#include "topology/ring.h"

#include <algorithm>
#include <limits>
#include <map>
#include <numeric>
#include <set>

#include "topology/answers.h"

namespace tutti::topology {
namespace {

enum class First { packages, labels, affinity };

// What one hop between two GPUs crosses, as digits of one number: the most important in front. A ring of fewer than
// kDigit GPUs carries no digit over; the last digit, the distance, is below kDigit and has twice the room.
constexpr std::uint64_t kDigit = 256;

struct Hop {
  bool package = false, numa = false, affinity = false, label = false, unlinked = true, host_bridge = false;
  int distance = 0;  // below kDigit: more links are nearer, so is one switch than several

  std::uint64_t cost(First first) const {
    std::uint64_t sum = (first == First::labels && label) || (first == First::affinity && affinity) ? 1 : 0;
    for (const bool crossed : {package, numa, label, unlinked, host_bridge}) sum = sum * kDigit + (crossed ? 1 : 0);
    return sum * kDigit * kDigit + std::uint64_t(distance);
  }
};

class Hops {
 public:
  explicit Hops(const Graph& graph) : graph_(graph), gpus_(graph.all(VertexKind::gpu)) {
    for (const Link& link : graph.links)
      if (link.kind == LinkKind::nvlink || link.kind == LinkKind::xgmi) {
        linked_.insert(std::minmax(link.a, link.b));
        direct_ = true;
      }
    for (const int gpu : gpus_) {
      package_.push_back(package_of(graph, gpu));
      numa_.push_back(numa_of(graph, gpu));
    }
  }

  int count() const { return int(gpus_.size()); }
  bool is_tree() const { return graph_.relations.empty() && !direct_; }
  int vertex(int position) const { return gpus_[std::size_t(position)]; }

  Hop between(int i, int j) const {
    const std::size_t a = std::size_t(i), b = std::size_t(j);
    const Nearness near = nearness(graph_, gpus_[a], gpus_[b]);
    const Vertex& from = graph_.vertices[std::size_t(gpus_[a])];
    const Vertex& to = graph_.vertices[std::size_t(gpus_[b])];
    Hop hop;
    hop.package = package_[a] != package_[b];
    hop.numa =
        numa_[a] != numa_[b] || (numa_[a] < 0 && hop.package);  // both nodes unknown: another package has other ones
    hop.affinity = from.cpus != to.cpus;
    hop.label = names_socket_crossing(near.label);
    hop.unlinked = !names_link(near.label) && linked_.count(std::minmax(gpus_[a], gpus_[b])) == 0;
    hop.host_bridge = near.level > Level::host_bridge;
    hop.distance = names_link(near.label)           ? std::clamp(1200 - near.order, 0, 200)
                   : near.label == "PXB"            ? 1
                   : near.level > Level::pci_switch ? 2
                                                    : 0;
    return hop;
  }

 private:
  const Graph& graph_;
  std::vector<int> gpus_, package_, numa_;
  std::set<std::pair<int, int>> linked_;
  bool direct_ = false;
};

Ring counted(const Hops& hops, std::vector<int> order) {
  Ring ring;
  ring.order = std::move(order);
  for (std::size_t i = 0; i < ring.order.size() && ring.order.size() > 1; ++i) {
    const Hop hop = hops.between(ring.order[i], ring.order[(i + 1) % ring.order.size()]);
    ring.cross_package += hop.package ? 1 : 0;
    ring.cross_numa += hop.numa ? 1 : 0;
    ring.cross_affinity += hop.affinity ? 1 : 0;
    ring.cross_label += hop.label ? 1 : 0;
  }
  return ring;
}

// GPU 0 first, and of the two directions the one whose second GPU has the lower number.
std::vector<int> canonical(std::vector<int> order) {
  std::rotate(order.begin(), std::min_element(order.begin(), order.end()), order.end());
  if (order.size() > 2 && order[1] > order.back()) std::reverse(order.begin() + 1, order.end());
  return order;
}

// Appends the members in the tree's order: whatever shares an ancestor stands together, at every depth. No closed tour
// enters any subtree more often than once then, which is the fewest possible at all levels at the same time.
void append_by_tree(const std::vector<std::vector<int>>& paths, const std::vector<int>& members, std::size_t depth,
                    std::vector<int>& order) {
  std::vector<int> ends;  // GPUs whose own vertex hangs here: together, behind the subtrees
  std::vector<std::pair<int, std::vector<int>>> children;  // in order of their first GPU
  for (const int gpu : members) {
    const std::vector<int>& path = paths[std::size_t(gpu)];
    if (depth + 1 >= path.size()) {
      ends.push_back(gpu);
      continue;
    }
    const auto child =
        std::find_if(children.begin(), children.end(), [&](const auto& c) { return c.first == path[depth]; });
    if (child == children.end()) {
      children.emplace_back(path[depth], std::vector<int>{gpu});
    } else {
      child->second.push_back(gpu);
    }
  }
  for (const auto& [vertex, below] : children) append_by_tree(paths, below, depth + 1, order);
  order.insert(order.end(), ends.begin(), ends.end());
}

std::vector<int> tree_order(const Graph& graph, const Hops& hops) {
  std::vector<std::vector<int>> paths;
  std::vector<int> members(std::size_t(hops.count())), order;
  std::iota(members.begin(), members.end(), 0);
  for (const int gpu : members) {
    std::vector<int> path;
    for (int v = hops.vertex(gpu); v >= 0; v = graph.vertices[std::size_t(v)].parent) path.push_back(v);
    std::reverse(path.begin(), path.end());
    paths.push_back(std::move(path));
  }
  append_by_tree(paths, members, 0, order);
  return order;
}

// 2-opt: reverses stretches while that helps, a bounded number of rounds.
std::vector<int> improved(std::vector<int> order, const std::function<std::uint64_t(int, int)>& cost) {
  constexpr int kRounds = 32;
  const std::size_t n = order.size();
  bool better = true;
  for (int round = 0; round < kRounds && better; ++round) {
    better = false;
    for (std::size_t i = 0; i + 2 < n; ++i)
      for (std::size_t j = i + 2; j < n; ++j) {
        const int a = order[i], b = order[i + 1], c = order[j], d = order[(j + 1) % n];
        if (a == d || cost(a, c) + cost(b, d) >= cost(a, b) + cost(c, d)) continue;
        std::reverse(order.begin() + std::ptrdiff_t(i) + 1, order.begin() + std::ptrdiff_t(j) + 1);
        better = true;
      }
  }
  return order;
}

Ring ring_of(const Graph& graph, First first) {
  const Hops hops(graph);
  const int n = hops.count();
  std::vector<int> order = tree_order(graph, hops);
  if (n > 3 && (!hops.is_tree() || first == First::affinity) && n < int(kDigit)) {
    std::vector<std::uint64_t> table(std::size_t(n) * std::size_t(n));
    for (int i = 0; i < n; ++i)
      for (int j = 0; j < n; ++j)
        if (i != j) table[std::size_t(i * n + j)] = hops.between(i, j).cost(first);
    const auto cost = [&](int i, int j) { return table[std::size_t(i * n + j)]; };
    order = n <= kExactRing ? shortest_tour(n, cost) : improved(std::move(order), cost);
  }
  return counted(hops, canonical(std::move(order)));
}

}  // namespace

std::vector<int> shortest_tour(int count, const std::function<std::uint64_t(int, int)>& cost) {
  std::vector<int> order(std::size_t(std::max(count, 0)));
  std::iota(order.begin(), order.end(), 0);
  if (count < 4 || count > kExactRing) return order;
  // best[set][last]: from 0 through all of `set` (without 0, bit i is i + 1), ending at last.
  const int m = count - 1;
  const std::size_t sets = std::size_t(1) << m;
  constexpr std::uint64_t kNever = std::numeric_limits<std::uint64_t>::max();
  std::vector<std::uint64_t> best(sets * std::size_t(m), kNever);
  std::vector<std::int8_t> before(sets * std::size_t(m), -1);
  std::vector<std::uint64_t> table(std::size_t(count) * std::size_t(count));
  for (int i = 0; i < count; ++i)
    for (int j = 0; j < count; ++j) table[std::size_t(i * count + j)] = i == j ? 0 : cost(i, j);
  const auto hop = [&](int i, int j) { return table[std::size_t(i * count + j)]; };
  for (int last = 0; last < m; ++last)
    best[(std::size_t(1) << last) * std::size_t(m) + std::size_t(last)] = hop(0, last + 1);
  for (std::size_t set = 1; set < sets; ++set)
    for (int last = 0; last < m; ++last) {
      const std::uint64_t here = best[set * std::size_t(m) + std::size_t(last)];
      if (here == kNever) continue;
      for (int next = 0; next < m; ++next) {
        if (set >> next & 1) continue;
        const std::size_t to = (set | std::size_t(1) << next) * std::size_t(m) + std::size_t(next);
        if (here + hop(last + 1, next + 1) >= best[to]) continue;
        best[to] = here + hop(last + 1, next + 1);
        before[to] = std::int8_t(last);
      }
    }
  int last = 0;
  const std::size_t full = sets - 1;
  const auto closed = [&](int l) { return best[full * std::size_t(m) + std::size_t(l)] + hop(l + 1, 0); };
  for (int l = 1; l < m; ++l)
    if (closed(l) < closed(last)) last = l;
  std::size_t set = full;
  for (int i = count - 1; i > 0; --i) {
    order[std::size_t(i)] = last + 1;
    const int previous = before[set * std::size_t(m) + std::size_t(last)];
    set &= ~(std::size_t(1) << last);
    last = previous;
  }
  return order;
}

Ring best_ring(const Graph& graph) { return ring_of(graph, First::packages); }
Ring label_ring(const Graph& graph) { return ring_of(graph, First::labels); }
Ring affinity_ring(const Graph& graph) { return ring_of(graph, First::affinity); }

Ring index_ring(const Graph& graph) {
  const Hops hops(graph);
  std::vector<int> order(std::size_t(hops.count()));
  std::iota(order.begin(), order.end(), 0);
  return counted(hops, std::move(order));
}

}  // namespace tutti::topology
