#pragma once
// Cross-entropy of rows of logits against target tokens, and its gradient in the logits' own place: the widest matrix of a small
// model exists once.
#include <cstddef>

#include "trainer/embedding.h"
#include "trainer/threads.h"

namespace tutti::trainer {

// losses[r] = -log softmax(logits[r])[target]; log_sums[r] is kept for the backward pass.
template <class T>
void loss_forward(Threads& threads, std::size_t rows, std::size_t vocabulary, const T* logits, const Token* targets, T* losses, T* log_sums);

// logits[r] becomes (softmax - one at the target) * scale.
template <class T>
void loss_backward(Threads& threads, std::size_t rows, std::size_t vocabulary, const Token* targets, const T* log_sums, T scale, T* logits);

}  // namespace tutti::trainer
