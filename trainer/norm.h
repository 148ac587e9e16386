#pragma once
// Normalisation of rows: LayerNorm (mean and variance, weight and bias) and RMSNorm (root mean square, weight only; Zhang and
// Sennrich 2019). A null `bias` or gradient of one is left out.
#include <cstddef>

#include "trainer/threads.h"

namespace tutti::trainer {

enum class NormKind : bool { layer, rms };
inline constexpr double kNormEpsilon = 1e-5;

// y = (x - mean) scale * weight + bias for each of `rows` rows of `width`. mean[rows] (unused by rms) and scale[rows] are kept for
// the backward pass.
template <class T>
void norm_forward(Threads& threads, NormKind kind, std::size_t rows, std::size_t width, const T* x, const T* weight, const T* bias, T* y,
                  T* mean, T* scale);

// dx += the gradient for x, given dy. d_weight and d_bias = their gradients + beta times what they held.
template <class T>
void norm_backward(Threads& threads, NormKind kind, std::size_t rows, std::size_t width, const T* x, const T* weight, const T* mean,
                   const T* scale, const T* dy, T* dx, T* d_weight, T* d_bias, T beta);

}  // namespace tutti::trainer
