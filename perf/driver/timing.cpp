#include "perf/driver/timing.h"

#include <algorithm>
#include <cmath>
#include <ctime>

namespace tutti::perf {
namespace {

constexpr double kWantedUs = 20000;
constexpr int kMostIterations = 10000;

}  // namespace

double microseconds(Clock::duration time) { return std::chrono::duration<double, std::micro>(time).count(); }

double process_cpu_us() {
  timespec time{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return double(time.tv_sec) * 1e6 + double(time.tv_nsec) * 1e-3;
}

double percentile(std::vector<double> samples, double part) {
  if (samples.empty()) return 0;
  const std::size_t place = std::size_t(std::ceil(part * double(samples.size())));
  const auto at = samples.begin() + std::ptrdiff_t(std::clamp<std::size_t>(place, 1, samples.size()) - 1);
  std::nth_element(samples.begin(), at, samples.end());
  return *at;
}

void add_samples(Figures& figures, const std::vector<double>& times_us, int divisor, int skip) {
  if (times_us.empty()) return;
  const std::size_t left_out = std::min(std::size_t(skip), times_us.size() - 1);
  std::vector<double> samples(times_us.begin() + std::ptrdiff_t(left_out), times_us.end());
  double sum = 0, squares = 0;
  for (double& sample : samples) sum += sample /= divisor;
  const double mean = sum / double(samples.size());
  for (double sample : samples) squares += (sample - mean) * (sample - mean);
  figures.spread = mean > 0 ? std::sqrt(squares / double(samples.size())) / mean : 0;
  figures.min_us = *std::min_element(samples.begin(), samples.end());
  figures.max_us = *std::max_element(samples.begin(), samples.end());
  figures.p50_us = percentile(samples, 0.50);
  figures.p95_us = percentile(samples, 0.95);
  figures.p99_us = percentile(samples, 0.99);
}

int iterations_for(double one_us, int least) {
  const double wanted = one_us > 0 ? kWantedUs / one_us : kMostIterations;
  return int(std::clamp<double>(wanted, least, std::max(least, kMostIterations)));
}

}  // namespace tutti::perf
