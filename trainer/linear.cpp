#include "trainer/linear.h"

#include <vector>

namespace tutti::trainer {

template <class T>
void linear_forward(Threads& threads, std::size_t rows, std::size_t inputs, std::size_t outputs, const T* x, const T* w, const T* b, T* y,
                    const T* onto, Precision precision) {
  if (b || onto) {
    threads.ranges(rows, 4, [&](std::size_t begin, std::size_t end) {
      for (std::size_t r = begin; r < end; ++r) {
        T* row = y + r * outputs;
        for (std::size_t i = 0; i < outputs; ++i) row[i] = onto ? onto[r * outputs + i] : T(0);
        if (b) for (std::size_t i = 0; i < outputs; ++i) row[i] += b[i];
      }
    });
  }
  product<T>(threads, rows, outputs, inputs, T(1), {x, inputs}, {w, outputs}, b || onto ? T(1) : T(0), y, outputs, precision);
}

template <class T>
void linear_backward(Threads& threads, std::size_t rows, std::size_t inputs, std::size_t outputs, const T* x, const T* w, const T* dy, T* dx,
                     T* d_w, T* d_b, T beta, Precision precision) {
  if (d_b) {
    threads.ranges(outputs, 64, [&](std::size_t begin, std::size_t end) {
      std::vector<T> sum(end - begin);
      for (std::size_t r = 0; r < rows; ++r) {
        const T* row = dy + r * outputs + begin;
        for (std::size_t i = 0; i < end - begin; ++i) sum[i] += row[i];
      }
      for (std::size_t i = begin; i < end; ++i) d_b[i] = sum[i - begin] + (beta == T(0) ? T(0) : beta * d_b[i]);
    });
  }
  product<T>(threads, inputs, outputs, rows, T(1), {x, inputs, Form::transposed}, {dy, outputs}, beta, d_w, outputs, precision);
  product<T>(threads, rows, inputs, outputs, T(1), {dy, outputs}, {w, outputs, Form::transposed}, T(0), dx, inputs, precision);
}

#define TUTTI_FOR(T)                                                                                                                 \
  template void linear_forward(Threads&, std::size_t, std::size_t, std::size_t, const T*, const T*, const T*, T*, const T*, Precision); \
  template void linear_backward(Threads&, std::size_t, std::size_t, std::size_t, const T*, const T*, const T*, T*, T*, T*, T, Precision);
TUTTI_FOR(float)
TUTTI_FOR(double)
#undef TUTTI_FOR

}  // namespace tutti::trainer
