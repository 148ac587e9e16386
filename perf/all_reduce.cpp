// all_reduce_perf: the benchmark of all_reduce. Only what is particular to this collective; the rest is perf/driver.
#include "perf/driver/benchmark.h"

namespace tutti::perf {
namespace {

Shape shape(std::size_t count, int, int, int) {
  return {.input = count, .output = count, .size = count, .expected = {{kReduced, 0, count, 0}}};
}

Work start(Communicator& ranks, const Call& c) {
  return ranks.all_reduce(
      {.input = c.input, .output = c.output, .count = c.count, .type = c.type, .op = c.op, .factor = c.factor, .stream = c.stream});
}

const Benchmark kBenchmark{.program = "all_reduce_perf",
                           .what = Collective::all_reduce,
                           .reduces = true,
                           .rooted = false,
                           .in_place = true,
                           .bus_factor = factor_twice_share,
                           .count = whole_count,
                           .shape = shape,
                           .start = start};

}  // namespace
}  // namespace tutti::perf

int main(int argc, char** argv, char** environment) {
  return tutti::perf::run_program(tutti::perf::kBenchmark, {argv, std::size_t(argc)}, environment);
}
