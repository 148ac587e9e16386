#include "trainer/norm.h"

#include <cmath>
#include <vector>

#include "trainer/numbers.h"

namespace tutti::trainer {
namespace {

constexpr std::size_t kRows = 4, kColumns = 64;     // the least worth a thread

}  // namespace

template <class T>
void norm_forward(Threads& threads, NormKind kind, std::size_t rows, std::size_t width, const T* x, const T* weight, const T* bias, T* y,
                  T* mean, T* scale) {
  threads.ranges(rows, kRows, [&](std::size_t begin, std::size_t end) {
    for (std::size_t r = begin; r < end; ++r) {
      const T* in = x + r * width;
      T* out = y + r * width;
      const T m = kind == NormKind::rms ? T(0) : sum_of<T>(width, [&](std::size_t i) { return in[i]; }) / T(width);
      const T variance = sum_of<T>(width, [&](std::size_t i) { return (in[i] - m) * (in[i] - m); }) / T(width);
      const T s = T(1) / std::sqrt(variance + T(kNormEpsilon));
      for (std::size_t i = 0; i < width; ++i) out[i] = (in[i] - m) * s * weight[i];
      if (bias) for (std::size_t i = 0; i < width; ++i) out[i] += bias[i];
      mean[r] = m;
      scale[r] = s;
    }
  });
}

template <class T>
void norm_backward(Threads& threads, NormKind kind, std::size_t rows, std::size_t width, const T* x, const T* weight, const T* mean,
                   const T* scale, const T* dy, T* dx, T* d_weight, T* d_bias, T beta) {
  // With n = (x - mean) scale and g = dy weight: dx = scale (g - average(g) - n average(g n)); rms lacks the middle term.
  threads.ranges(rows, kRows, [&](std::size_t begin, std::size_t end) {
    for (std::size_t r = begin; r < end; ++r) {
      const T* in = x + r * width;
      const T* up = dy + r * width;
      T* down = dx + r * width;
      const T m = mean[r], s = scale[r];
      const T average = kind == NormKind::rms ? T(0) : sum_of<T>(width, [&](std::size_t i) { return up[i] * weight[i]; }) / T(width);
      const T along = sum_of<T>(width, [&](std::size_t i) { return up[i] * weight[i] * (in[i] - m) * s; }) / T(width);
      for (std::size_t i = 0; i < width; ++i) down[i] += s * (up[i] * weight[i] - average - (in[i] - m) * s * along);
    }
  });
  threads.ranges(width, kColumns, [&](std::size_t begin, std::size_t end) {
    std::vector<T> weights(end - begin), biases(end - begin);
    for (std::size_t r = 0; r < rows; ++r) {
      const T* in = x + r * width + begin;
      const T* up = dy + r * width + begin;
      const T m = mean[r], s = scale[r];
      for (std::size_t i = 0; i < end - begin; ++i) {
        weights[i] += up[i] * (in[i] - m) * s;
        biases[i] += up[i];
      }
    }
    for (std::size_t i = begin; i < end; ++i) {
      d_weight[i] = weights[i - begin] + (beta == T(0) ? T(0) : beta * d_weight[i]);
      if (d_bias) d_bias[i] = biases[i - begin] + (beta == T(0) ? T(0) : beta * d_bias[i]);
    }
  });
}

#define TUTTI_FOR(T)                                                                                                               \
  template void norm_forward(Threads&, NormKind, std::size_t, std::size_t, const T*, const T*, const T*, T*, T*, T*);             \
  template void norm_backward(Threads&, NormKind, std::size_t, std::size_t, const T*, const T*, const T*, const T*, const T*, T*, \
                              T*, T*, T);
TUTTI_FOR(float)
TUTTI_FOR(double)
#undef TUTTI_FOR

}  // namespace tutti::trainer
