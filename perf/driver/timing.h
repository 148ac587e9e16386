#pragma once
// From clock readings of one rank to figures. Reads clocks, but neither communicates nor prints.
#include <chrono>
#include <cstddef>
#include <vector>

#include "perf/driver/record.h"

namespace tutti::perf {

using Clock = std::chrono::steady_clock;
double microseconds(Clock::duration time);
double process_cpu_us();  // CPU time of all threads of this process

// The value that the share `part` of all samples does not exceed (nearest rank); 0 without samples.
double percentile(std::vector<double> samples, double part);

// Fills percentiles, extremes and spread of `figures` from single iterations' times, each divided by `divisor`, leaving
// out the first `skip` (all but one where fewer are there).
void add_samples(Figures& figures, const std::vector<double>& times_us, int divisor, int skip);

// How many iterations to time when nobody said: about 20 ms of them, at least `least` and at most 10,000.
int iterations_for(double one_us, int least);

}  // namespace tutti::perf
