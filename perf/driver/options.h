#pragma once
// The command line as a value. What cannot be obeyed is refused, with the reason; nothing is guessed.
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <tutti/status.h>
#include <tutti/types.h>

#include "perf/driver/inputs.h"

namespace tutti::perf {

// Exit statuses of the benchmarks.
inline constexpr int kExitOk = 0, kExitFailed = 1, kExitUsage = 2, kExitWrong = 7;

enum class Average { rank0 = 0, mean = 1, min = 2, max = 3 };
// After each iteration: nothing; wait and barrier; wait; wait and barrier once for all of -m.
enum class Blocking { none = 0, barrier_each = 1, wait_each = 2, barrier_outer = 3 };

// Where buffers lie: by tutti::allocate, on a GPU.
enum class Memory { host, allocated, cuda };

struct AddedRun {
  std::string file, label;  // label empty: taken from the file's contents
};

struct Options {
  int threads = 1, processes = 0;  // processes 0: not said; one a core
  bool parallel_init = false;      // of nccl-tests; ranks always meet in parallel
  std::size_t min_bytes = 32u << 20, max_bytes = 32u << 20, step_bytes = 1u << 20;
  std::size_t step_factor = 0;  // 0: step_bytes
  int iterations = 20;
  bool iterations_said = false;               // else more of them where time allows
  int warmup = 5, aggregate = 1, cycles = 1;  // cycles 0: for ever
  int checks = 1;
  Check check = Check::exact;
  std::vector<ReduceOp> ops{ReduceOp::sum};
  std::vector<DataType> types{DataType::f32};
  int root = 0;
  bool all_roots = false;
  Blocking blocking = Blocking::none;
  double timeout_s = 0;  // 0: the library's own
  Memory memory = Memory::host;
  bool local_register = false;
  bool cpu_time = false, timestamps = false, memory_report = false, per_iteration = false;
  Average average = Average::mean;
  int skip = 0;                 // first iterations that percentiles leave out
  int unalign = 0;              // elements
  std::string json, csv, plot;  // files; empty: none
  std::vector<AddedRun> plot_add;
  std::optional<double> min_busbw;
  int member_fd = -1;  // set in the processes that the program starts itself: where failures are told
};

// What the command line asks for: options, or a text to show and an exit status.
struct Parsed {
  std::optional<Options> options;
  int status = kExitOk;
  std::string text;
};
Parsed parse_options(const std::string& program, const std::vector<std::string>& args);

// The sizes of a sweep in bytes, ascending. A sweep from 0 goes on with 8 bytes (or the step).
std::vector<std::size_t> sizes_of(const Options& options);

// nccl-tests' spellings: "float", "half", "int8"; "sum", "mulsum".
std::string table_name(DataType type);
std::string table_name(ReduceOp op);

}  // namespace tutti::perf
