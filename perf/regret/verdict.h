#pragma once
// Verdict: from the times of every algorithm at one point (transport, ranks, size) to what the automatic choice cost.
// The best algorithm is chosen on half of the rounds and scored on the other half,
// so that luck does not count. Values; no clocks.
#include <cstddef>
#include <string>
#include <vector>

namespace tutti::perf::regret {

struct Times {
  std::string algorithm;
  std::vector<double> us;      // by round; fewer where it was given up as hopeless
};

struct Point {
  std::string transport;
  int ranks = 0;
  std::size_t bytes = 0;
  std::string choice;          // the library's
  std::vector<Times> times;    // its own among them
};

struct Verdict {
  std::string best;            // least median in even rounds
  double choice_us = 0, best_us = 0;   // medians of odd rounds
  double ratio = 1;            // choice / best; 1 where they are the same algorithm
};

inline constexpr double kTolerance = 1.10;    // a choice within this ratio counts as right
inline constexpr double kWantedShare = 0.95;  // of points with such a choice

Verdict judge(const Point& point);
double share_within(const std::vector<Point>& points);   // 1 without points

std::string table_head();
std::string table_row(const Point& point);
// All algorithms with their medians over all rounds, best first: "ring 12.3 tree 15.0".
std::string details(const Point& point);
std::string to_json(const Point& point);
// Throws nlohmann::json::exception: the text is no point.
Point point_from_json(const std::string& text);

}  // namespace tutti::perf::regret
