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
  if (!request.order.empty()) return request.order;
  std::vector<int> order(std::size_t(request.rank_count));
  std::iota(order.begin(), order.end(), 0);
  // Group numbers by first appearance along the order so far, from the outermost level inwards.
  for (const std::vector<int>& level : request.levels) {
    std::map<int, int> number;
    for (const int rank : order) number.try_emplace(level[std::size_t(rank)], int(number.size()));
    std::stable_sort(order.begin(), order.end(),
                     [&](int a, int b) { return number.at(level[std::size_t(a)]) < number.at(level[std::size_t(b)]); });
  }
  return std::is_sorted(order.begin(), order.end()) ? std::vector<int>{} : order;
}

Traffic::Traffic(const Request& request) : request_(request) {
  const std::size_t ranks = std::size_t(request.rank_count);
  for (const std::vector<int>& level : request.levels)
    leaving_.emplace_back(std::size_t(*std::max_element(level.begin(), level.end())) + 1);
  leaving_.emplace_back(ranks);
  sent_.assign(leaving_.size(), std::vector<int>(ranks));
}

void Traffic::add(int rank, int border, double bytes, int messages) {
  const std::size_t at = std::size_t(border), who = std::size_t(rank);
  leaving_[at][at < request_.levels.size() ? std::size_t(request_.levels[at][who]) : who] += bytes;
  sent_[at][who] += messages;
}

std::vector<Border> Traffic::borders(Hops longest) const {
  std::vector<Border> out;
  for (std::size_t i = 0; i < leaving_.size(); ++i)
    out.push_back({int(longest / hop_over(int(i)) & 0xffff), *std::max_element(leaving_[i].begin(), leaving_[i].end()),
                   *std::max_element(sent_[i].begin(), sent_[i].end())});
  return out;
}

std::vector<Border> all_pairs(const Request& request, double part, int rounds) {
  const std::size_t levels = request.levels.size(), ranks = std::size_t(request.rank_count);
  std::vector<Border> out(levels + 1);
  std::vector<int> around(ranks, 0), group(ranks);   // the group of the level around, by rank
  std::vector<int> outer_size(ranks), size(ranks);
  bool crossed = false;
  for (std::size_t level = 0; level <= levels; ++level) {
    if (level < levels) group = request.levels[level];
    else std::iota(group.begin(), group.end(), 0);
    outer_size.assign(ranks, 0);
    size.assign(ranks, 0);
    for (std::size_t r = 0; r < ranks; ++r) {
      ++outer_size[std::size_t(around[r])];
      ++size[std::size_t(group[r])];
    }
    Border& border = out[level];
    for (std::size_t r = 0; r < ranks; ++r) {
      const int members = size[std::size_t(group[r])], others = outer_size[std::size_t(around[r])] - members;
      border.bytes = std::max(border.bytes, rounds * part * members * others);
      border.messages = std::max(border.messages, rounds * others);
    }
    if (border.messages > 0 && !crossed) border.hops = rounds, crossed = true;
    around = group;
  }
  return out;
}

std::vector<Border> along_ring(const Request& request, double part, int hops, bool both) {
  std::vector<int> order = nested_order(request);
  const int p = request.rank_count;
  if (order.empty()) {
    order.resize(std::size_t(p));
    std::iota(order.begin(), order.end(), 0);
  }
  Traffic traffic(request);
  std::vector<int> edges;   // by place: the border to the next
  for (int i = 0; i < p; ++i) {
    const int a = order[std::size_t(i)], b = order[std::size_t(wrap(i + 1, p))];
    edges.push_back(border_between(request, a, b));
    traffic.add(a, edges.back(), part, hops);
    if (both) traffic.add(b, edges.back(), part, hops);
  }
  std::vector<Border> out = traffic.borders(0);
  // A chain goes along `hops` edges in a row: some loops but for the few edges before its begin.
  const int loops = (hops + p - 1) / p;
  std::vector<int> whole(out.size()), most;
  for (const int level : edges) whole[std::size_t(level)] += loops;
  for (int begin = 0; begin < p; ++begin) {
    std::vector<int> chain = whole;
    for (int i = 1; i <= loops * p - hops; ++i) --chain[std::size_t(edges[std::size_t(wrap(begin - i, p))])];
    most = std::max(most, chain);
  }
  for (std::size_t level = 0; level < out.size(); ++level) out[level].hops = most[level];
  return out;
}

}  // namespace tutti::algorithms
