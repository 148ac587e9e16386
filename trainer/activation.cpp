#include "trainer/activation.h"

#include "trainer/numbers.h"

namespace tutti::trainer {
namespace {

constexpr double kRoot = 0.7978845608028654;        // sqrt(2 / pi)
constexpr double kCubic = 0.044715;

}  // namespace

template <class T>
void activation_forward(Threads& threads, ActivationKind kind, std::size_t rows, std::size_t width, const T* x, T* y) {
  threads.ranges(rows, 1, [&](std::size_t begin, std::size_t end) {
    for (std::size_t r = begin; r < end; ++r) {
      const T* in = x + r * width * inputs_of(kind);
      T* out = y + r * width;
      if (kind == ActivationKind::gelu) {
        for (std::size_t i = 0; i < width; ++i) {
          out[i] = T(0.5) * in[i] * (T(1) + tanh_of(T(kRoot) * (in[i] + T(kCubic) * in[i] * in[i] * in[i])));
        }
      } else {
        for (std::size_t i = 0; i < width; ++i) out[i] = in[i] * sigmoid_of(in[i]) * in[width + i];
      }
    }
  });
}

template <class T>
void activation_backward(Threads& threads, ActivationKind kind, std::size_t rows, std::size_t width, const T* x, const T* dy, T* dx) {
  threads.ranges(rows, 1, [&](std::size_t begin, std::size_t end) {
    for (std::size_t r = begin; r < end; ++r) {
      const T* in = x + r * width * inputs_of(kind);
      const T* up = dy + r * width;
      T* down = dx + r * width * inputs_of(kind);
      if (kind == ActivationKind::gelu) {
        for (std::size_t i = 0; i < width; ++i) {
          const T t = tanh_of(T(kRoot) * (in[i] + T(kCubic) * in[i] * in[i] * in[i]));
          const T slope = T(kRoot) * (T(1) + T(3 * kCubic) * in[i] * in[i]);
          down[i] = up[i] * T(0.5) * (T(1) + t + in[i] * (T(1) - t * t) * slope);
        }
      } else {
        for (std::size_t i = 0; i < width; ++i) {
          const T s = sigmoid_of(in[i]);
          down[width + i] = up[i] * in[i] * s;
          down[i] = up[i] * in[width + i] * s * (T(1) + in[i] * (T(1) - s));
        }
      }
    }
  });
}

#define TUTTI_FOR(T)                                                                                              \
  template void activation_forward(Threads&, ActivationKind, std::size_t, std::size_t, const T*, T*);            \
  template void activation_backward(Threads&, ActivationKind, std::size_t, std::size_t, const T*, const T*, T*);
TUTTI_FOR(float)
TUTTI_FOR(double)
#undef TUTTI_FOR

}  // namespace tutti::trainer
