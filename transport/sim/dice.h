#pragma once
// Seeded chance for the simulation: every random choice of a run comes from one of these. Not for keys or nonces.
#include <cstdint>

#include "core/net.h"

namespace tutti::sim {

// SplitMix64 (Steele, Lea, Flood 2014): passes through all 2^64 states, and any seed is a good one.
class Dice {
 public:
  explicit Dice(std::uint64_t seed) : state_(seed) {}

  std::uint64_t next() {
    std::uint64_t z = (state_ += 0x9e3779b97f4a7c15ULL);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
    return z ^ (z >> 31);
  }
  // 0 .. limit - 1; 0 for limit 0.
  std::uint64_t below(std::uint64_t limit) { return limit == 0 ? 0 : next() % limit; }
  // Does not draw when the answer is certain.
  bool chance(double probability) {
    if (probability <= 0) return false;
    return static_cast<double>(next() >> 11) * 0x1p-53 < probability;
  }
  // 0 .. limit, both included.
  Nanoseconds up_to(Nanoseconds limit) {
    if (limit.count() <= 0) return Nanoseconds{0};
    return Nanoseconds{static_cast<std::int64_t>(below(static_cast<std::uint64_t>(limit.count()) + 1))};
  }

 private:
  std::uint64_t state_;
};

}  // namespace tutti::sim
