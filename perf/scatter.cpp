// scatter_perf: the benchmark of scatter. Only what is particular to this collective; the rest is perf/driver.
#include "perf/driver/benchmark.h"

namespace tutti::perf {
namespace {

Shape shape(std::size_t count, int rank, int rank_count, int root) {
  const std::size_t mine = count * std::size_t(rank);
  Shape s{.output = count, .size = count * std::size_t(rank_count)};
  s.expected = {{root, mine, count, 0}};
  if (rank != root) return s;
  s.input = s.size;
  s.output_at = mine;
  return s;
}

Work start(Communicator& ranks, const Call& c) {
  return ranks.scatter({.input = c.input, .output = c.output, .count = c.count, .type = c.type, .root = c.root, .stream = c.stream});
}

const Benchmark kBenchmark{.program = "scatter_perf",
                           .what = Collective::scatter,
                           .reduces = false,
                           .rooted = true,
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
