#pragma once
// Rows of the token and position tables, and the gradients for them.
#include <cstddef>
#include <cstdint>

#include "trainer/threads.h"

namespace tutti::trainer {

using Token = std::int32_t;

// x[batch * context][width] = table[token] + positions[place in the sample]; without `positions` (null) the first alone.
template <class T>
void embedding_forward(Threads& threads, std::size_t batch, std::size_t context, std::size_t width, const Token* tokens, const T* table,
                       const T* positions, T* x);

// d_table[token] += dx of each of its places. d_positions = the sum over samples + beta times what it held.
template <class T>
void embedding_backward(Threads& threads, std::size_t batch, std::size_t context, std::size_t width, const Token* tokens, const T* dx,
                        T* d_table, T* d_positions, T beta);

}  // namespace tutti::trainer
