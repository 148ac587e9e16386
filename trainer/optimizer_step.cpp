#include "trainer/optimizer_step.h"

#include "trainer/layout.h"
#include "trainer/numbers.h"

namespace tutti::trainer {
namespace {

// By value and without overlap, so that the loop becomes vector code.
void change(std::size_t n, AdamWStep f, const float* __restrict gradient, float* __restrict m, float* __restrict v, float* __restrict weights) {
  for (std::size_t i = 0; i < n; ++i) {
    const float g = gradient[i] * f.scale;
    m[i] = f.b1 * m[i] + (1 - f.b1) * g;
    v[i] = f.b2 * v[i] + (1 - f.b2) * g * g;
    weights[i] = f.keep * weights[i] - f.rate1 * m[i] / (std::sqrt(v[i]) * f.root2 + f.epsilon);
  }
}

}  // namespace

void adamw(Threads& threads, std::size_t n, const AdamWStep& step, const float* gradient, float* first, float* second, float* weights) {
  threads.ranges(n, 1 << 13, [&](std::size_t begin, std::size_t end) {
    change(end - begin, step, gradient + begin, first + begin, second + begin, weights + begin);
  });
}

void sum_squares(Threads& threads, std::size_t blocks, const float* x, double* squares) {
  threads.ranges(blocks, 8, [&](std::size_t begin, std::size_t end) {
    for (std::size_t block = begin; block < end; ++block) {
      const float* of_block = x + block * kBlock;
      squares[block] = sum_of<double>(kBlock, [&](std::size_t i) { return double(of_block[i]) * double(of_block[i]); });
    }
  });
}

}  // namespace tutti::trainer
