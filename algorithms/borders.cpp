#include "algorithms/borders.h"

#include <algorithm>
#include <map>
#include <numeric>

#include "algorithms/steps.h"

namespace tutti::algorithms {

int border_between(const Request& request, int a, int b) {
  for (std::size_t level = 0; level < request.levels.size(); ++level)
    if (request.levels[level][std::size_t(a)] != request.levels[level][std::size_t(b)]) return int(level);
  return int(request.levels.size());
}

std::vector<int> nested_order(const Request& request) {
  std::vector<int> order(std::size_t(request.rank_count));
  std::iota(order.begin(), order.end(), 0);
  // Group numbers by first appearance along the order so far, from the outermost level inwards.
  for (const std::vector<int>& level : request.levels) {
    std::map<int, int> number;
    for (const int rank : order) number.try_emplace(level[std::size_t(rank)], int(number.size()));
    std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return number.at(level[std::size_t(a)]) < number.at(level[std::size_t(b)]); });
  }
  return std::is_sorted(order.begin(), order.end()) ? std::vector<int>{} : order;
}

namespace {

// Every rank sends `part` of n to every other, `rounds` times over.
std::vector<Border> all_pairs(const Request& request, double part, int rounds) {
  const std::size_t levels = request.levels.size();
  std::vector<Border> out(levels + 1);
  std::vector<int> around(std::size_t(request.rank_count), 0);   // the group of the level around, by rank
  bool crossed = false;
  for (std::size_t level = 0; level <= levels; ++level) {
    std::map<int, int> outer_size, size, outer_of;
    std::vector<int> group(std::size_t(request.rank_count));
    std::iota(group.begin(), group.end(), 0);
    if (level < levels) group = request.levels[level];
    for (std::size_t r = 0; r < group.size(); ++r) {
      ++outer_size[around[r]];
      ++size[group[r]];
      outer_of[group[r]] = around[r];
    }
    Border& border = out[level];
    for (const auto& [id, members] : size) {
      const int others = outer_size[outer_of[id]] - members;
      border.bytes = std::max(border.bytes, rounds * part * members * others);
      border.messages = std::max(border.messages, rounds * others);
    }
    if (border.messages > 0 && !crossed) border.hops = rounds, crossed = true;
    around = group;
  }
  return out;
}

// Every rank sends `part` of n in all to the next in nested order, in `hops` messages, and as much to the one before if `both`.
std::vector<Border> neighbours(const Request& request, double part, int hops, bool both) {
  std::vector<int> order = nested_order(request);
  const int p = request.rank_count, levels = int(request.levels.size());
  if (order.empty()) {
    order.resize(std::size_t(p));
    std::iota(order.begin(), order.end(), 0);
  }
  std::vector<Border> out(std::size_t(levels) + 1);
  std::vector<int> edges;                                             // by place: the border to the next
  std::vector<std::map<int, double>> leaving(std::size_t(levels) + 1);
  std::vector<std::map<int, int>> sent(std::size_t(levels) + 1);      // messages, by rank
  for (int i = 0; i < p; ++i) {
    const int a = order[std::size_t(i)], b = order[std::size_t(wrap(i + 1, p))];
    const int level = border_between(request, a, b);
    edges.push_back(level);
    for (const int from : {a, b}) {
      if (from == b && !both) break;
      leaving[std::size_t(level)][level < levels ? request.levels[std::size_t(level)][std::size_t(from)] : from] += part;
      sent[std::size_t(level)][from] += hops;
    }
  }
  // A chain goes along `hops` edges in a row: some loops but for the few edges before its begin.
  const int loops = (hops + p - 1) / p;
  std::vector<int> whole(std::size_t(levels) + 1), most;
  for (const int level : edges) whole[std::size_t(level)] += loops;
  for (int begin = 0; begin < p; ++begin) {
    std::vector<int> chain = whole;
    for (int i = 1; i <= loops * p - hops; ++i) --chain[std::size_t(edges[std::size_t(wrap(begin - i, p))])];
    most = std::max(most, chain);
  }
  for (int level = 0; level <= levels; ++level) {
    Border& border = out[std::size_t(level)];
    border.hops = most[std::size_t(level)];
    for (const auto& [group, bytes] : leaving[std::size_t(level)]) border.bytes = std::max(border.bytes, bytes);
    for (const auto& [rank, messages] : sent[std::size_t(level)]) border.messages = std::max(border.messages, messages);
  }
  return out;
}

}  // namespace

std::vector<Border> borders(const Generator& generator, const Request& request) {
  const int p = request.rank_count;
  const bool whole = request.collective == Collective::all_reduce, scatters = request.collective == Collective::reduce_scatter;
  const bool shares = scatters || request.collective == Collective::all_gather;
  if (generator.name() == "direct" && (whole || shares)) return all_pairs(request, whole ? 1.0 : 1.0 / p, 1);
  if (generator.name() == "two_shot" && whole) return all_pairs(request, 1.0 / p, 2);
  if (generator.name() == "ring" && (whole || shares)) {
    const int rounds = whole ? 2 * (p - 1) : p - 1;
    return neighbours(request, double(rounds) / p, rounds, false);
  }
  if (generator.name() == "bidirectional_ring" && (whole || shares)) {
    const int rounds = whole ? 2 * (p - 1) : p - 1;
    return neighbours(request, 0.5 * rounds / p, rounds, true);
  }
  std::vector<Schedule> schedules;
  const auto schedule_of = generator.schedules(request);
  for (int rank = 0; rank < p; ++rank) schedules.push_back(schedule_of(rank));
  return count_borders(request, schedules);
}

}  // namespace tutti::algorithms
