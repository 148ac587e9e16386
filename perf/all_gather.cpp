// all_gather_perf: the benchmark of all_gather. Only what is particular to this collective; the rest is perf/driver.
#include "perf/driver/benchmark.h"

namespace tutti::perf {
namespace {

Shape shape(std::size_t count, int rank, int rank_count, int) {
  Shape s{.input = count, .output = count * std::size_t(rank_count)};
  s.size = s.output;
  s.input_at = count * std::size_t(rank);
  for (int r = 0; r < rank_count; ++r) s.expected.push_back({r, 0, count, count * std::size_t(r)});
  return s;
}

Work start(Communicator& ranks, const Call& c) {
  return ranks.all_gather({.input = c.input, .output = c.output, .count = c.count, .type = c.type, .stream = c.stream});
}

const Benchmark kBenchmark{.program = "all_gather_perf",
                           .what = Collective::all_gather,
                           .reduces = false,
                           .rooted = false,
                           .in_place = true,
                           .bus_factor = factor_share,
                           .count = block_count,
                           .shape = shape,
                           .start = start};

}  // namespace
}  // namespace tutti::perf

int main(int argc, char** argv, char** environment) {
  return tutti::perf::run_program(tutti::perf::kBenchmark, {argv, std::size_t(argc)}, environment);
}
