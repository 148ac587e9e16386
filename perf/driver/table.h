#pragma once
// The text that people and scripts read: nccl-tests' table, with the columns `algorithm` and `transport` at the end of
// a row.
#include <string>
#include <vector>

#include "perf/driver/options.h"
#include "perf/driver/record.h"

namespace tutti::perf {

struct RankPlace {
  int rank = 0, group = 0, process = 0, local_rank = 0;
  std::string host;
};

struct Heading {
  std::string program, version;
  std::string note;  // how the ranks came about
  std::vector<RankPlace> ranks;
};

std::string heading_text(const Heading& heading, const Options& options);
std::string columns_text(const Options& options);  // the three lines above the rows
std::string row_text(const Row& row, const Options& options);
// What stands below the rows. `enough`: whether a wanted bus bandwidth was reached; none: nothing was wanted.
std::string closing_text(const Run& run, const Options& options, std::optional<bool> enough);

// In `width` characters: with two decimals, fewer where they do not fit.
std::string fitted(double value, int width);

}  // namespace tutti::perf
