#pragma once
// What a run measured, as values, and as JSON and CSV. A record never holds the environment: it may hold secrets.
#include <optional>
#include <string>
#include <vector>

#include <tutti/status.h>

namespace tutti::perf {

// One placement at one size. Times in microseconds, bandwidths in GB/s (1e9).
struct Figures {
  double time_us = 0, p50_us = 0, p95_us = 0, p99_us = 0, min_us = 0, max_us = 0;
  double spread = 0;  // of single iterations: standard deviation / mean
  double cpu_us = 0;
  double algbw = 0, busbw = 0;
  std::optional<double> wrong;             // elements on all ranks; none: not checked
  std::optional<double> error_over_bound;  // of random inputs
};

struct Row {
  std::size_t bytes = 0, count = 0;
  std::string type, op;  // op "none": not a reduction
  int root = -1;         // -1: no root
  std::string algorithm, transport;
  Figures out_of_place;
  std::optional<Figures> in_place;
  std::string timestamp;
};

struct Run {
  std::string program, version;
  std::vector<std::string> args;
  int ranks = 0;
  std::vector<Row> rows;
  double out_of_bounds = 0;                    // guard bytes found changed, on all ranks
  double buffer_bytes = 0, library_bytes = 0;  // on all ranks
  double average_busbw() const;                // plain mean over rows and placements; 0 without any
  double wrong() const;
};

std::string to_json(const Run& run);
Result<Run> from_json(const std::string& text);  // invalid_argument
std::string to_csv(const Run& run);              // a header and a line a row

// Errors name the file: invalid_argument.
Status write_file(const std::string& file, const std::string& text);
Result<std::string> read_file(const std::string& file);
// Whether write_file could work, found out before a long run.
Status probe_file(const std::string& file);

}  // namespace tutti::perf
