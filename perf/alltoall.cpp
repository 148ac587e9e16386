// alltoall_perf: the benchmark of all_to_all. Only what is particular to this collective; the rest is perf/driver.
#include "perf/driver/benchmark.h"

namespace tutti::perf {
namespace {

Shape shape(std::size_t count, int rank, int rank_count, int) {
  Shape s{.input = count * std::size_t(rank_count), .output = count * std::size_t(rank_count)};
  s.size = s.output;
  for (int r = 0; r < rank_count; ++r)
    s.expected.push_back({r, count * std::size_t(rank), count, count * std::size_t(r)});
  return s;
}

Work start(Communicator& ranks, const Call& c) {
  return ranks.all_to_all({.input = c.input, .output = c.output, .count = c.count, .type = c.type, .stream = c.stream});
}

const Benchmark kBenchmark{.program = "alltoall_perf",
                           .what = Collective::all_to_all,
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
