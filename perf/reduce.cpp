// reduce_perf: the benchmark of reduce. Only what is particular to this collective; the rest is perf/driver.
#include "perf/driver/benchmark.h"

namespace tutti::perf {
namespace {

Shape shape(std::size_t count, int rank, int, int root) {
  Shape s{.input = count, .output = rank == root ? count : 0, .size = count};
  if (rank == root) s.expected = {{kReduced, 0, count, 0}};
  return s;
}

Work start(Communicator& ranks, const Call& c) {
  return ranks.reduce({.input = c.input,
                       .output = c.output,
                       .count = c.count,
                       .type = c.type,
                       .op = c.op,
                       .root = c.root,
                       .factor = c.factor, .stream = c.stream});
}

const Benchmark kBenchmark{.program = "reduce_perf",
                           .what = Collective::reduce,
                           .reduces = true,
                           .rooted = true,
                           .in_place = true,
                           .bus_factor = factor_one,
                           .count = whole_count,
                           .shape = shape,
                           .start = start};

}  // namespace
}  // namespace tutti::perf

int main(int argc, char** argv, char** environment) {
  return tutti::perf::run_program(tutti::perf::kBenchmark, {argv, std::size_t(argc)}, environment);
}
