// The program whose instructions are counted (count.sh): all_reduces of 8 bytes of two ranks in simulation, over the
// shared-memory transport, driven by one thread, so that nobody ever spins and each run does the same. Both ranks call,
// then both wait.
//   hot_path TIMES [FOLDER]      FOLDER: with flight recorders there
#include <cstdio>
#include <cstdlib>

#include "tests/sim/crew.h"

namespace {

using namespace tutti;

// What is counted. Returns how many sums were wrong.
[[gnu::noinline]] int hot_path(Communicator& first, Communicator& second, long times) {
  int wrong = 0;
  for (long i = 0; i < times; ++i) {
    const double own[2] = {double(i), 0.5};
    double sum[2] = {};
    Work of_first = first.all_reduce({&own[0], &sum[0], 1, DataType::f64});
    Work of_second = second.all_reduce({&own[1], &sum[1], 1, DataType::f64});
    wrong += !of_second.wait().ok() || !of_first.wait().ok();
    wrong += sum[0] != own[0] + own[1] || sum[1] != sum[0];
  }
  return wrong;
}

int run(long times, const char* recorders) {
  sim::CrewOptions options;
  options.settings.transport = "shm";
  if (recorders) options.settings.recorder = recorders;
  options.agenda = [](int, int index) {
    return sim::Exchange{
        .what = Collective::all_reduce, .count = 1, .type = DataType::f64, .salt = std::uint64_t(index), .ranks = 2};
  };
  options.exchanges = 20;                              // connections, plans, memory: all there
  sim::Crew crew(1, options);
  if (!crew.assemble() || !crew.run_until_over(std::chrono::seconds{60}) ||
      !crew.all([](const sim::CrewRank& rank) { return rank.done() && rank.wrong == 0; })) {
    std::fprintf(stderr, "%s", crew.report().c_str());
    return 1;
  }
  return hot_path(crew.rank(0).communicator(), crew.rank(1).communicator(), times) == 0 ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  const long times = argc > 1 ? std::atol(argv[1]) : 0;
  if (times < 1) {
    std::fprintf(stderr, "usage: hot_path TIMES [FOLDER]\n");
    return 2;
  }
  return run(times, argc > 2 ? argv[2] : nullptr);
}
