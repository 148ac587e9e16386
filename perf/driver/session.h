#pragma once
// Session: one rank's part of a benchmark, from joined communicators to a Run. It measures and checks; it neither
// starts ranks nor prints. All ranks must call run() with the same options.
#include <functional>
#include <optional>

#include <tutti/tutti.h>

#include "perf/driver/benchmark.h"
#include "perf/driver/buffer.h"
#include "perf/driver/check.h"
#include "perf/driver/options.h"
#include "perf/driver/record.h"
#include "perf/driver/timing.h"

namespace tutti::perf {

struct Watcher {  // of one rank; any may be empty
  std::function<void(const std::string&)> remark;  // before the first row
  std::function<void(const Row&)> row;
  std::function<void(int cycle)> cycle;  // before each but the first
  std::function<void(const std::string& doing, std::size_t done, std::size_t all)> progress;
};

class Session {
 public:
  // `world`: all ranks; figures are put together over it. `ranks`: those that the operation is among (the same or a
  // part).
  Session(const Benchmark& benchmark, const Options& options, Communicator& world, Communicator& ranks)
      : benchmark_(benchmark), options_(options), world_(world), ranks_(ranks) {}
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  // `into` receives rows, out_of_bounds and memory; equal on all ranks, as far as the library's own sums are right.
  Status run(Run& into, const Watcher& watcher);
  // Whether this rank itself saw a wrong value or a damaged guard: told without the library's help.
  bool saw_wrong() const { return saw_wrong_; }

 private:
  struct Trial;  // one placement at one size

  Status prepare_buffers();
  Status take_gpu(const Watcher& watcher);
  Status sweep(Run& into, const Watcher& watcher, DataType type, ReduceOp op, int root, int cycle);
  Status measure_row(Row& row, DataType type, ReduceOp op, int root, std::size_t bytes, int cycle);
  Status measure(Figures& figures, const Trial& trial, std::size_t bytes, int cycle);
  Trial make_trial(DataType type, ReduceOp op, int root, std::size_t count, bool in_place) const;
  void fill(const Trial& trial, Checker& checker);
  Verdict verify(const Trial& trial, Checker& checker);
  Status check(Figures& figures, const Trial& trial, int cycle);
  Status time(Figures& figures, const Trial& trial);
  Status warm_up(const Trial& trial, double& one_us);
  Status time_batch(Figures& figures, const Trial& trial, int iterations);
  Status time_each(Figures& figures, const Trial& trial, int iterations, bool mean_too);
  Status sample_clock(std::vector<double>& times_us, const Trial& trial, int iterations);
  Status sample_stream(std::vector<double>& times_us, const Trial& trial, int iterations);
  // On host memory done at return; on a GPU's enqueued, and settle() waits.
  Status iterate(const Trial& trial);
  Status start_all(const Trial& trial);
  Status go_on(Work work);
  Status settle();
  Status wait(Work work);
  Status combine(Figures& figures);
  Status all_reduce(std::vector<double>& values, ReduceOp op);
  Checker& checker_for(const Trial& trial, int seed);

  const Benchmark& benchmark_;
  const Options& options_;
  Communicator& world_;
  Communicator& ranks_;
  Buffer input_, output_;
  DeviceStream stream_;             // given: buffers are on a GPU
  Work last_;                       // on it
  Clock::time_point settled_;       // when the stream had passed it
  std::vector<gpu_mark> marks_;     // made so far
  gpu_stream stream() const { return static_cast<gpu_stream>(stream_.handle); }
  std::size_t buffer_bytes_ = 0;
  std::optional<Checker> checker_;
  std::optional<Recipe> recipe_;
  double out_of_bounds_ = 0;
  std::size_t done_ = 0, all_ = 0;  // rows, for progress
  bool saw_wrong_ = false;
};

}  // namespace tutti::perf
