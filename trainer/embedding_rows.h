#pragma once
// The gradient of the embedding, which is tied to the head, on many ranks. The head's part is all of the table, and is known first of all: its
// exchange goes on beside the whole backward pass. The part of the rows that were looked up is known last, and is small where a batch is:
// ranks gather each other's rows, and all add them in the order of ranks, so that they agree on every bit.
#include <cstddef>

#include "trainer/backend.h"
#include "trainer/block.h"
#include "trainer/wire.h"

namespace tutti::trainer {

class EmbeddingRows {
 public:
  EmbeddingRows(const ModelConfig& config, BatchShape shape, Wire& wire, Backend<float>& backend);
  // Whether all ranks' rows are at most as many as the table's: then they follow apart, which is more to send in all and leaves less
  // behind backward. The same on all ranks.
  bool worth_it() const { return !dx_.empty(); }
  // Before the head's part goes: positions that count nothing yet become 0.
  void clear_positions(float* unit);
  // Collective. What this rank's batch adds: dx[rows of the batch][width].
  void gather(const Token* tokens, const float* dx);
  // Waits. Adds the rows of all ranks, and what they are to the positions, to the gradient of unit 0.
  void add_to(float* unit);
  std::size_t bytes() const { return tokens_.bytes() + dx_.bytes(); }

 private:
  const ModelConfig config_;
  const BatchShape shape_;
  Wire& wire_;
  Backend<float>& backend_;
  Array<Token> tokens_;             // rank by rank, as dx_
  Array<float> dx_;
  Exchange of_tokens_, of_dx_;
};

}  // namespace tutti::trainer
