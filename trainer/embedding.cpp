#include "trainer/embedding.h"

namespace tutti::trainer {

template <class T>
void embedding_forward(Threads& threads, std::size_t batch, std::size_t context, std::size_t width, const Token* tokens, const T* table,
                       const T* positions, T* x) {
  threads.ranges(batch * context, 4, [&](std::size_t begin, std::size_t end) {
    for (std::size_t r = begin; r < end; ++r) {
      const T* row = table + std::size_t(tokens[r]) * width;
      for (std::size_t i = 0; i < width; ++i) x[r * width + i] = row[i];
      const T* position = positions + r % context * width;
      if (positions) for (std::size_t i = 0; i < width; ++i) x[r * width + i] += position[i];
    }
  });
}

template <class T>
void embedding_backward(Threads& threads, std::size_t batch, std::size_t context, std::size_t width, const Token* tokens, const T* dx,
                        T* d_table, T* d_positions, T beta) {
  threads.ranges(width, 64, [&](std::size_t begin, std::size_t end) {
    for (std::size_t r = 0; r < batch * context; ++r) {
      T* row = d_table + std::size_t(tokens[r]) * width;
      for (std::size_t i = begin; i < end; ++i) row[i] += dx[r * width + i];
    }
    for (std::size_t t = 0; d_positions && t < context; ++t) {
      for (std::size_t i = begin; i < end; ++i) {
        T sum = 0;
        for (std::size_t b = 0; b < batch; ++b) sum += dx[(b * context + t) * width + i];
        d_positions[t * width + i] = sum + (beta == T(0) ? T(0) : beta * d_positions[t * width + i]);
      }
    }
  });
}

#define TUTTI_FOR(T)                                                                                                                    \
  template void embedding_forward(Threads&, std::size_t, std::size_t, std::size_t, const Token*, const T*, const T*, T*);              \
  template void embedding_backward(Threads&, std::size_t, std::size_t, std::size_t, const Token*, const T*, T*, T*, T);
TUTTI_FOR(float)
TUTTI_FOR(double)
#undef TUTTI_FOR

}  // namespace tutti::trainer
