#pragma once
// What AdamW does to one number, and the sums of squares that the gradient's norm is made of.
#include <cstddef>

#include "trainer/threads.h"

namespace tutti::trainer {

// The factors of one step.
struct AdamWStep {
  float b1, b2, epsilon, scale, keep, rate1, root2;
};

// first and second: the averages of the gradient and of its square.
void adamw(Threads& threads, std::size_t n, const AdamWStep& step, const float* gradient, float* first, float* second, float* weights);

// Of each block of kBlock (layout.h) numbers, in float64.
void sum_squares(Threads& threads, std::size_t blocks, const float* x, double* squares);

}  // namespace tutti::trainer
