// reduce_scatter_perf: the benchmark of reduce_scatter. Only what is particular to this collective; the rest is
// perf/driver.
#include "perf/driver/benchmark.h"

namespace tutti::perf {
namespace {

Shape shape(std::size_t count, int rank, int rank_count, int) {
  const std::size_t mine = count * std::size_t(rank);
  Shape s{.input = count * std::size_t(rank_count), .output = count};
  s.size = s.input;
  s.output_at = mine;
  s.expected = {{kReduced, mine, count, 0}};
  return s;
}

Work start(Communicator& ranks, const Call& c) {
  return ranks.reduce_scatter(
      {.input = c.input, .output = c.output, .count = c.count, .type = c.type, .op = c.op, .factor = c.factor, .stream = c.stream});
}

const Benchmark kBenchmark{.program = "reduce_scatter_perf",
                           .what = Collective::reduce_scatter,
                           .reduces = true,
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
