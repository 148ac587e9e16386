// planning_perf: what it costs to plan a call among 64 ranks, the first time (every candidate is counted and priced)
// and again with another size (priced). Medians of many; no communication.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <vector>

#include "comm/planner.h"
#include "perf/driver/median.h"

namespace {

using namespace tutti;

double microseconds_of(const auto& work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start).count();
}

comm::Prices prices_for(std::size_t levels) {
  comm::Prices prices;
  prices.borders.assign(levels + 1, comm::BorderPrice{});
  return prices;
}

void measure(Collective what, const std::vector<std::vector<int>>& levels, int ranks) {
  const comm::Planner empty({}, false, prices_for(levels.size()));
  comm::Question question{{what, ranks, 0, false, levels}, 1 << 20};
  std::vector<double> fresh, again;
  for (int i = 0; i < 200; ++i) {
    comm::Planner planner = empty.fresh();
    fresh.push_back(microseconds_of([&] { (void)planner.plans(question); }));
    question.bytes += 4096;
    again.push_back(microseconds_of([&] { (void)planner.plans(question); }));
  }
  fmt::print("{:<15} {:>5} ranks, {} levels: new {:8.1f} us, again {:6.2f} us\n", name_of(what), ranks, levels.size(),
             perf::median(fresh), perf::median(again));
}

}  // namespace

int main() {
  std::vector<int> hosts, nodes;
  for (int rank = 0; rank < 64; ++rank) hosts.push_back(rank / 8), nodes.push_back(rank / 4);
  for (const Collective what : {Collective::all_reduce, Collective::all_gather, Collective::reduce_scatter,
                                Collective::broadcast, Collective::reduce, Collective::all_to_all})
    for (const auto& levels : {std::vector<std::vector<int>>{}, {hosts}, {hosts, nodes}}) measure(what, levels, 64);
}
