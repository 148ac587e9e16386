#pragma once
// Borders: what a schedule sends across the borders between groups (hosts, packages, NUMA nodes), level by level. Together
// with prices of the links there it says what an algorithm costs on a machine that is not flat.
#include <vector>

#include "algorithms/generate.h"

namespace tutti::algorithms {

// Between groups of one level that lie in one group of the level around it; the last: between ranks of one innermost group.
struct Border {
  // Messages that cross here on the longest chain, each made of what the one before brought; of all chains the one with most
  // hops outermost. What only waits for its lane is not counted: wires carry more than one message at a time.
  int hops = 0;
  double bytes = 0;   // leaving the busiest group, as a multiple of n (see Cost); the last border: leaving the busiest rank
  int messages = 0;   // across here, sent by the busiest rank
  bool operator==(const Border&) const = default;
};

// One more than request.levels, outermost first. At most kMaxLevels levels.
inline constexpr int kMaxLevels = 3;
// By closed forms where all pairs or all neighbours exchange the same, else counted from the schedules. refusal() must be empty.
std::vector<Border> borders(const Generator& generator, const Request& request);
// Counted from the schedules of all ranks, which must be well formed and free of deadlock.
std::vector<Border> count_borders(const Request& request, std::span<const Schedule> schedules);

// The level whose border lies between two ranks: the outermost at which they are in different groups; levels.size(): none.
int border_between(const Request& request, int a, int b);
// All ranks, groups one behind another at every level, in order of their first ranks: who goes along this order crosses borders the
// fewest times. Empty: ranks are in such an order already.
std::vector<int> nested_order(const Request& request);

}  // namespace tutti::algorithms
