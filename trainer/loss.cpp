#include "trainer/loss.h"

#include <cmath>

#include "trainer/numbers.h"

namespace tutti::trainer {

template <class T>
void loss_forward(Threads& threads, std::size_t rows, std::size_t vocabulary, const T* logits, const Token* targets, T* losses, T* log_sums) {
  threads.ranges(rows, 1, [&](std::size_t begin, std::size_t end) {
    for (std::size_t r = begin; r < end; ++r) {
      const T* row = logits + r * vocabulary;
      const T top = max_of(vocabulary, row[0], [&](std::size_t i) { return row[i]; });
      log_sums[r] = top + std::log(sum_of<T>(vocabulary, [&](std::size_t i) { return exp_of(row[i] - top); }));
      losses[r] = log_sums[r] - row[targets[r]];
    }
  });
}

template <class T>
void loss_backward(Threads& threads, std::size_t rows, std::size_t vocabulary, const Token* targets, const T* log_sums, T scale, T* logits) {
  threads.ranges(rows, 1, [=](std::size_t begin, std::size_t end) {      // by value: what is behind a reference stops vector code
    for (std::size_t r = begin; r < end; ++r) {
      T* row = logits + r * vocabulary;
      const T log_sum = log_sums[r];
      for (std::size_t i = 0; i < vocabulary; ++i) row[i] = exp_of(row[i] - log_sum) * scale;
      row[targets[r]] -= scale;
    }
  });
}

#define TUTTI_FOR(T)                                                                                                 \
  template void loss_forward(Threads&, std::size_t, std::size_t, const T*, const Token*, T*, T*);                   \
  template void loss_backward(Threads&, std::size_t, std::size_t, const Token*, const T*, T, T*);
TUTTI_FOR(float)
TUTTI_FOR(double)
#undef TUTTI_FOR

}  // namespace tutti::trainer
