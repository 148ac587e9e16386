#pragma once
// Causal attention in blocks with a running softmax (Milakov and Gimelshein 2018; Dao et al. 2022): memory grows with the
// context, not with its square. Forward keeps one number a row, the logarithm of its softmax's denominator; backward computes the
// probabilities again from it.
#include <cstddef>

#include "trainer/dropout.h"
#include "trainer/precision.h"
#include "trainer/threads.h"

namespace tutti::trainer {

struct AttentionShape {
  std::size_t batch, context;
  std::size_t heads, kv_heads;        // kv_heads divides heads: so many query heads share a key and a value head
  std::size_t head_size;
  Precision precision = Precision::f32;      // of the products
  constexpr std::size_t width() const { return heads * head_size; }
  constexpr std::size_t qkv_width() const { return (heads + 2 * kv_heads) * head_size; }
};

// A row of `qkv` is the queries of all heads, then the keys, then the values. out[batch * context][width()];
// log_sums[batch][heads][context]. Dropout acts on the probabilities.
template <class T>
void attention_forward(Threads& threads, const AttentionShape& shape, const Dropout& dropout, const T* qkv, T* out, T* log_sums);

// d_qkv = the gradient for qkv, given that for `out`.
template <class T>
void attention_backward(Threads& threads, const AttentionShape& shape, const Dropout& dropout, const T* qkv, const T* out,
                        const T* log_sums, const T* d_out, T* d_qkv);

}  // namespace tutti::trainer
