#pragma once
// Ticks: the cheapest clock there is. Counts of the processor's own counter where it runs evenly on all cores, else
// nanoseconds. A recorder's file says what a tick is worth.
#include <chrono>
#include <cstdint>

#if defined(__x86_64__)
#include <cpuid.h>
#include <x86intrin.h>
#endif

namespace tutti::record {

inline std::uint64_t steady_nanoseconds() {
  return std::uint64_t(std::chrono::steady_clock::now().time_since_epoch() / std::chrono::nanoseconds(1));
}

// Whether the processor's counter may be used; asked once a recorder.
inline bool has_even_counter() {
#if defined(__x86_64__)
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid(0x80000007u, &a, &b, &c, &d) != 0 && (d >> 8 & 1) != 0;   // invariant TSC
#elif defined(__aarch64__)
  return true;
#else
  return false;
#endif
}

inline std::uint64_t counter() {
#if defined(__x86_64__)
  return __rdtsc();
#elif defined(__aarch64__)
  std::uint64_t value;
  asm volatile("mrs %0, cntvct_el0" : "=r"(value));
  return value;
#else
  return steady_nanoseconds();
#endif
}

}  // namespace tutti::record
