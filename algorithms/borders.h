#pragma once
// What generators say their borders with, where a closed form spares them the
// schedules of all ranks. See Generator::borders.
#include <cstdint>
#include <span>
#include <vector>

#include "algorithms/generate.h"

namespace tutti::algorithms {

// Counted from the schedules of all ranks, which must be well formed and free of deadlock.
std::vector<Border> count_borders(const Request& request, std::span<const Schedule> schedules);

// The level whose border lies between two ranks: the outermost at which they
// are in different groups; levels.size(): none.
int border_between(const Request& request, int a, int b);
// The request's order; else all ranks, groups one behind another at every level, in order of their first ranks: who
// goes along this order crosses borders the fewest times. Empty: ranks are in such an order already.
std::vector<int> nested_order(const Request& request);

// Hops of one chain by border, 16 bits each, the outermost on top: so the larger number has more hops outermost.
using Hops = std::uint64_t;
constexpr Hops hop_over(int border) { return Hops(1) << 16 * (kMaxLevels - border); }

// Messages as they are added up, whoever receives them.
class Traffic {
 public:
  explicit Traffic(const Request& request);
  // `rank` sends `messages` over this border, `bytes` of n in all.
  void add(int rank, int border, double bytes, int messages = 1);
  // The busiest group and rank of each border; hops from the longest chain.
  std::vector<Border> borders(Hops longest) const;

 private:
  const Request& request_;
  std::vector<std::vector<double>> leaving_;   // by border, group
  std::vector<std::vector<int>> sent_;         // by border, rank
};

// Every rank sends `part` of n to every other, `rounds` times over.
std::vector<Border> all_pairs(const Request& request, double part, int rounds);
// Every rank sends `part` of n in all to the next in nested order, in `hops`
// messages, and as much to the one before if `both`.
std::vector<Border> along_ring(const Request& request, double part, int hops, bool both);

}  // namespace tutti::algorithms
