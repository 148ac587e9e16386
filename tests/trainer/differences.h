#pragma once
// Gradients by central differences in float64: the independent path that backward passes are compared with.
#include <cmath>
#include <functional>
#include <gtest/gtest.h>
#include <string>
#include <vector>
#include "trainer/random.h"

namespace tutti::trainer::test {

// Numbers of about unit size, different for each key.
inline std::vector<double> numbers(std::uint64_t key, std::size_t count) {
  std::vector<double> x(count);
  for (std::size_t i = 0; i < count; ++i) x[i] = normal(key, i);
  return x;
}

inline double dot(const std::vector<double>& a, const std::vector<double>& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

// `value` is a function of x, which it reads anew at each call; `gradient` is what a backward pass says of it. All of x is tried
// where it is small, else some 60 places of it.
inline void expect_gradient(const std::string& what, std::vector<double>& x, const std::vector<double>& gradient,
                            const std::function<double()>& value) {
  ASSERT_EQ(x.size(), gradient.size()) << what;
  constexpr double kStep = 1e-5;
  const std::size_t stride = x.size() > 60 ? x.size() / 60 : 1;
  for (std::size_t i = 0; i < x.size(); i += stride) {
    const double old = x[i];
    x[i] = old + kStep;
    const double above = value();
    x[i] = old - kStep;
    const double below = value();
    x[i] = old;
    const double wanted = (above - below) / (2 * kStep);
    EXPECT_NEAR(gradient[i], wanted, 1e-7 * (1 + std::abs(wanted))) << what << "[" << i << "]";
  }
}

}  // namespace tutti::trainer::test
