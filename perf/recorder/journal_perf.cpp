// What the flight recorder costs: all that an engine tells it of one small operation that is waited for, of one that is
// not, and of one that is over within its call; on a real file, with the
// processor's counter. Wanted: 25 ns an operation.
#include <benchmark/benchmark.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>

#include "algorithms/generate.h"
#include "comm/journal.h"
#include "core/posix_loop.h"
#include "record/folder.h"

namespace {

using namespace tutti;

struct Desk {
  Desk() {
    std::string name = "/dev/shm/tutti-journal-XXXXXX";
    folder = ::mkdtemp(name.data());
    record::Identity identity{.job = 1, .rank = 0, .rank_count = 2, .pid = ::getpid()};
    journal = std::make_unique<comm::Journal>(*loop, comm::open_recorder(folder, identity, record::moment_of_this_host),
                                              record::has_even_counter());
    operation.call = {Collective::all_reduce, DataType::f64, ReduceOp::sum, 0, 1};
    algorithms::Request request;
    request.rank_count = 2;
    const auto* direct = algorithms::find_generator("direct");
    comm::Binding binding;
    binding.header.key = {0, 1, 0};
    binding.vector = 1;
    operation.execution = std::make_unique<comm::Execution>();
    operation.execution->bind(
        std::make_shared<comm::Program>(comm::compile(request, 0, "direct", direct->generate(request, 0))), binding);
  }
  ~Desk() {
    journal->close(false);
    journal.reset();
    std::filesystem::remove_all(folder);
  }
  std::shared_ptr<Loop> loop = make_posix_loop();
  std::string folder;
  std::unique_ptr<comm::Journal> journal;
  comm::Operation operation{{}, nullptr};
};

void an_operation(benchmark::State& state, bool awaited) {
  Desk desk;
  transport::SegmentHeader header = desk.operation.execution->header();
  header.bytes = 8;
  for (auto _ : state) {
    desk.journal->started(desk.operation, awaited);
    if (awaited) desk.journal->tick();                 // the first look that finds nothing
    desk.journal->arrived(desk.operation, 1, header);
    desk.journal->ended(desk.operation, {});
    benchmark::ClobberMemory();
  }
}

// One that is over within its call: a run's, with a look at the clock every 32.
void one_over_at_once(benchmark::State& state) {
  Desk desk;
  transport::SegmentHeader header = desk.operation.execution->header();
  for (auto _ : state) {
    desk.journal->begun(header, 24);
    desk.journal->over();
    ++header.key.operation;
    benchmark::ClobberMemory();
  }
}

// The clock alone, of which each of the others reads one.
void the_counter(benchmark::State& state) {
  for (auto _ : state) benchmark::DoNotOptimize(record::counter());
}

BENCHMARK_CAPTURE(an_operation, awaited, true);
BENCHMARK_CAPTURE(an_operation, not_awaited, false);
BENCHMARK(one_over_at_once);
BENCHMARK(the_counter);

}  // namespace

BENCHMARK_MAIN();
