// sendrecv_perf: the benchmark of send and recv, around the ring of ranks. Only what is particular to them; the rest is
// perf/driver.
#include "perf/driver/benchmark.h"

namespace tutti::perf {
namespace {

// Each rank sends to the next one and receives from the one before it. There is no "in place": the buffers must differ.
Shape shape(std::size_t count, int rank, int rank_count, int) {
  const int from = (rank + rank_count - 1) % rank_count;
  return {.input = count, .output = count, .size = count, .expected = {{from, 0, count, 0}}};
}

Work start(Communicator& ranks, const Call& c) {
  const int n = ranks.rank_count(), rank = ranks.rank();
  ranks.begin_group();
  (void)ranks.send({.input = c.input, .count = c.count, .type = c.type, .peer = (rank + 1) % n, .stream = c.stream});
  (void)ranks.recv({.output = c.output, .count = c.count, .type = c.type, .peer = (rank + n - 1) % n, .stream = c.stream});
  return ranks.end_group();
}

const Benchmark kBenchmark{.program = "sendrecv_perf",
                           .what = Collective::send,
                           .reduces = false,
                           .rooted = false,
                           .in_place = false,
                           .bus_factor = factor_one,
                           .count = whole_count,
                           .shape = shape,
                           .start = start};

}  // namespace
}  // namespace tutti::perf

int main(int argc, char** argv, char** environment) {
  return tutti::perf::run_program(tutti::perf::kBenchmark, {argv, std::size_t(argc)}, environment);
}
