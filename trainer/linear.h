#pragma once
// y = x w + b for rows, with w stored [inputs][outputs] as GPT-2's checkpoints do, and the three gradients. `precision`
// is that of the products, see gemm.h.
#include <cstddef>

#include "trainer/gemm.h"

namespace tutti::trainer {

// y = x w + b (b may be null). With `onto`, y = onto + x w + b: how a branch joins the residual stream. onto may not be y.
template <class T>
void linear_forward(Threads& threads, std::size_t rows, std::size_t inputs, std::size_t outputs, const T* x, const T* w, const T* b, T* y,
                    const T* onto = nullptr, Precision precision = Precision::f32);

// dx = dy w^T. d_w and d_b (null where there is no bias) = their gradients + beta times what they held.
template <class T>
void linear_backward(Threads& threads, std::size_t rows, std::size_t inputs, std::size_t outputs, const T* x, const T* w, const T* dy, T* dx,
                     T* d_w, T* d_b, T beta, Precision precision = Precision::f32);

}  // namespace tutti::trainer
