#pragma once
// The median of measurements. Header only, for benchmarks that have no driver.
#include <algorithm>
#include <vector>

namespace tutti::perf {

// 0 without values.
inline double median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const std::size_t half = values.size() / 2;
  return values.size() % 2 ? values[half] : (values[half - 1] + values[half]) / 2;
}

}  // namespace tutti::perf
