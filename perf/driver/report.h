#pragma once
// Report: what rank 0 shows while a benchmark runs and writes at its end. On other ranks it is silent.
#include <optional>
#include <string>
#include <vector>

#include <tutti/tutti.h>

#include "perf/driver/benchmark.h"
#include "perf/driver/options.h"
#include "perf/driver/plot.h"
#include "perf/driver/record.h"
#include "perf/driver/session.h"

namespace tutti::perf {

struct Goal {
  std::optional<double> busbw;  // GB/s that the average must reach
};

// The lines that --plot-add asks for. invalid_argument.
Result<std::vector<Series>> read_added(const Options& options);

class Report {
 public:
  Report(const Benchmark& benchmark, const Options& options, const std::vector<std::string>& args, const Goal& goal,
         bool speaks);
  ~Report();  // leaves no half line on the terminal
  Report(const Report&) = delete;
  Report& operator=(const Report&) = delete;

  // Collective over `world`: gathers who takes part; prints the heading.
  Status open(Communicator& world, int color, const std::string& note);
  Watcher watcher();
  // Prints the end and writes the files; the exit status.
  Result<int> close(Run run);

 private:
  void say(const std::string& text);
  void progress(const std::string& doing, std::size_t done, std::size_t all);
  Status write_files(const Run& run) const;

  const Benchmark& benchmark_;
  const Options& options_;
  const std::vector<std::string>& args_;
  Goal goal_;
  bool speaks_, terminal_;
  bool line_shown_ = false;  // the progress line, on a terminal
};

}  // namespace tutti::perf
