#pragma once
// Small functions on single numbers that compilers turn into vector code: exp, tanh, and sums in a fixed order. What is constexpr here
// and in dropout.h, random.h, precision.h is also part of kernels (cuda/).
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>

namespace tutti::trainer {

// e^x to 2 units in the last place, without a branch; the range is cut to [-87, 88]. After Cephes: x = n ln 2 + r.
constexpr float exp_of(float x) {
  x = x < -87.0f ? -87.0f : x;
  x = x > 88.0f ? 88.0f : x;
  const float shifted = x * 1.44269504f + 12582912.0f;      // 1.5 * 2^23: the sum's low bits are the nearest integer n
  const float n = shifted - 12582912.0f;
  const float r = (x - n * 0.693359375f) - n * -2.12194440e-4f;
  float p = 1.9875691500e-4f;
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * r * r + r + 1.0f;
  const std::int32_t power = (std::bit_cast<std::int32_t>(shifted) - 0x4b400000 + 127) << 23;
  return p * std::bit_cast<float>(power);
}
inline double exp_of(double x) { return std::exp(x); }

template <class T>
constexpr T tanh_of(T x) { return T(1) - T(2) / (exp_of(T(2) * x) + T(1)); }

template <class T>
constexpr T sigmoid_of(T x) { return T(1) / (T(1) + exp_of(-x)); }

// f(0) + ... + f(n - 1), added in 16 lanes and those pairwise: the order depends on n alone.
template <class T, class F>
T sum_of(std::size_t n, F f) {
  constexpr std::size_t kLanes = 16;
  T lanes[kLanes] = {};
  std::size_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    for (std::size_t lane = 0; lane < kLanes; ++lane) lanes[lane] += f(i + lane);
  }
  for (std::size_t lane = 0; lane < kLanes && i + lane < n; ++lane) lanes[lane] += f(i + lane);
  for (std::size_t half = kLanes / 2; half > 0; half /= 2) {
    for (std::size_t lane = 0; lane < half; ++lane) lanes[lane] += lanes[lane + half];
  }
  return lanes[0];
}

// The largest of f(0) ... f(n - 1); `least` for n = 0.
template <class T, class F>
T max_of(std::size_t n, T least, F f) {
  constexpr std::size_t kLanes = 16;
  T lanes[kLanes];
  for (T& lane : lanes) lane = least;
  std::size_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    for (std::size_t lane = 0; lane < kLanes; ++lane) {
      const T x = f(i + lane);
      lanes[lane] = x > lanes[lane] ? x : lanes[lane];
    }
  }
  for (; i < n; ++i) lanes[0] = f(i) > lanes[0] ? f(i) : lanes[0];
  for (const T lane : lanes) least = lane > least ? lane : least;
  return least;
}

}  // namespace tutti::trainer
