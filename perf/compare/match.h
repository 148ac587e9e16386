#pragma once
// Match: from what each contender took, round by round, to medians, ratios and means. Values; no clocks, no processes.
#include <map>
#include <string>
#include <vector>

namespace tutti::perf::compare {

struct Field {
  std::string transport, collective;
  int ranks = 0;
  auto operator<=>(const Field&) const = default;
};

// One contender's rounds at one size, in microseconds. All contenders of a field have the same rounds.
using Rounds = std::vector<double>;
using Times = std::map<std::string, std::map<std::size_t, Rounds>>;      // by contender and bytes

struct Point {
  std::size_t bytes = 0;
  std::map<std::string, double> median;    // microseconds
  std::string best_peer;                   // empty: there is none
  double ratio = 0;                        // the best peer's time / ours: median over rounds; 0: no peer
  double least = 0, most = 0;              // of the rounds' ratios, without the outermost fifths
};

std::vector<Point> judge(const Times& times, const std::string& ours, const std::vector<std::string>& peers);
double geometric_mean(const std::vector<Point>& points);        // of the ratios; 0 without

// GB/s on the busiest link of a ring, as nccl-tests defines it.
double bus_bandwidth(const Field& field, std::size_t bytes, double us);

std::string to_table(const Field& field, const std::vector<Point>& points, const std::vector<std::string>& columns);
std::string csv_head(const std::vector<std::string>& columns);
std::string to_csv(const Field& field, const std::vector<Point>& points, const std::vector<std::string>& columns);

}  // namespace tutti::perf::compare
