#include "trainer/rope.h"

#include <cmath>
#include <vector>

namespace tutti::trainer {

template <class T>
void rope(Threads& threads, Turn turn, std::size_t rows, std::size_t context, std::size_t heads, std::size_t size, T* x, std::size_t stride) {
  const std::size_t half = size / 2;
  threads.ranges(rows, 4, [&](std::size_t begin, std::size_t end) {
    std::vector<T> cosine(half), sine(half);
    for (std::size_t r = begin; r < end; ++r) {
      for (std::size_t i = 0; i < half; ++i) {
        const double angle = double(r % context) * std::pow(10000.0, -2.0 * double(i) / double(size));
        cosine[i] = T(std::cos(angle));
        sine[i] = T(turn == Turn::forward ? std::sin(angle) : -std::sin(angle));
      }
      for (std::size_t head = 0; head < heads; ++head) {
        T* low = x + r * stride + head * size;
        T* high = low + half;
        for (std::size_t i = 0; i < half; ++i) {
          const T a = low[i], b = high[i];
          low[i] = a * cosine[i] - b * sine[i];
          high[i] = b * cosine[i] + a * sine[i];
        }
      }
    }
  });
}

template void rope(Threads&, Turn, std::size_t, std::size_t, std::size_t, std::size_t, float*, std::size_t);
template void rope(Threads&, Turn, std::size_t, std::size_t, std::size_t, std::size_t, double*, std::size_t);

}  // namespace tutti::trainer
