// broadcast_perf: the benchmark of broadcast. Only what is particular to this collective; the rest is perf/driver.
#include "perf/driver/benchmark.h"

namespace tutti::perf {
namespace {

Shape shape(std::size_t count, int rank, int, int root) {
  return {.input = rank == root ? count : 0, .output = count, .size = count, .expected = {{root, 0, count, 0}}};
}

Work start(Communicator& ranks, const Call& c) {
  return ranks.broadcast({.input = c.input, .output = c.output, .count = c.count, .type = c.type, .root = c.root, .stream = c.stream});
}

const Benchmark kBenchmark{.program = "broadcast_perf",
                           .what = Collective::broadcast,
                           .reduces = false,
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
