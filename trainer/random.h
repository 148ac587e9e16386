#pragma once
// Chance without state: every draw is a pure function of a key and a position. So the same seed gives the same weights, order of
// samples and dropout on any number of ranks, and there is nothing to save in a checkpoint.
#include <cmath>
#include <cstdint>

namespace tutti::trainer {

// The finalizer of SplitMix64 (Steele, Lea, Flood 2014): a bijection whose output bits all depend on all input bits.
constexpr std::uint64_t mix(std::uint64_t x) {
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}
constexpr std::uint64_t mix(std::uint64_t key, std::uint64_t position) { return mix(mix(key) ^ position); }

// In [0, 1), from 53 bits.
constexpr double uniform(std::uint64_t key, std::uint64_t position) { return double(mix(key, position) >> 11) * 0x1p-53; }

// Standard normal (Box and Muller 1958).
inline double normal(std::uint64_t key, std::uint64_t position) {
  const double radius = std::sqrt(-2 * std::log(1 - uniform(key, 2 * position)));
  return radius * std::cos(6.283185307179586 * uniform(key, 2 * position + 1));
}

}  // namespace tutti::trainer
