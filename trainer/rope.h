#pragma once
// Rotary position embedding (Su et al. 2021), in Llama's pairing: in each head, number i turns together with number i + size/2.
#include <cstddef>

#include "trainer/threads.h"

namespace tutti::trainer {

enum class Turn : bool { forward, backward };

// Turns the first `heads` heads of `size` in each of the rows, which lie `stride` apart; row r is at position r % context. The
// backward turn is the inverse, and the gradient.
template <class T>
void rope(Threads& threads, Turn turn, std::size_t rows, std::size_t context, std::size_t heads, std::size_t size, T* x, std::size_t stride);

}  // namespace tutti::trainer
