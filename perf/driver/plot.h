#pragma once
// Bus bandwidth over size as an SVG: each line is labelled at its end, colours and text are readable on light and on
// dark.
#include <string>
#include <vector>

#include "perf/driver/record.h"

namespace tutti::perf {

struct Series {
  std::string label;
  std::vector<std::pair<double, double>> points;  // bytes, GB/s; ascending in bytes, no size 0
};

// One series for each type, operation and root in a run, of the out-of-place figures. `label` is put before what tells
// the series apart; empty: the program and the number of ranks.
std::vector<Series> series_of(const Run& run, const std::string& label);

std::string to_svg(const std::vector<Series>& series, const std::string& title);

// "8", "4K", "128M".
std::string size_label(double bytes);

}  // namespace tutti::perf
