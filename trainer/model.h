#pragma once
// A decoder-only Transformer with explicit forward and backward passes over batches of one fixed shape. It holds activations;
// weights and gradients live elsewhere (store.h), all of it and the tokens in the backend's memory. No optimizer, no ranks, no files.
#include <cstddef>
#include <span>
#include <type_traits>
#include <vector>

#include "trainer/block.h"
#include "trainer/embedding.h"
#include "trainer/store.h"

namespace tutti::trainer {

template <class T>
class Model {
 public:
  // `recompute`: keep only the input of each block, and run its forward pass again in the backward pass: memory of one block
  // instead of all, for a third more work. `precision`: of matrix products (gemm.h); where it is not f32, the large activations wait in
  // 16 bits for the backward pass. The context of the shape is at most that of the config.
  Model(const ModelConfig& config, BatchShape shape, bool recompute, Backend<T>& backend, Precision precision = Precision::f32);

  BatchShape shape() const { return shape_; }
  std::size_t activation_bytes() const;

  // The embedding, first and last of a pass, is held from here until backward() is done with it.
  // The mean loss over the batch's rows. tokens and targets: rows() each, below the vocabulary.
  double forward(WeightSource<T>& weights, const Token* tokens, const Token* targets, const Dropout& dropout);
  void forward_logits(WeightSource<T>& weights, const Token* tokens, const Dropout& dropout);
  // [rows][vocabulary], until backward(), which overwrites them.
  std::span<const T> logits() const { return {logits_.data(), logits_.size()}; }
  // The gradients of `scale` times the mean loss of the last forward(), with the same tokens, targets and dropout.
  void backward(WeightSource<T>& weights, GradientSink<T>& gradients, const Token* tokens, const Token* targets, const Dropout& dropout,
                T scale);

 private:
  BlockTensors<const T> block(WeightSource<T>& weights, std::size_t layer, std::size_t next_unit) {
    return block_tensors(config_, layer, weights.weights(layer + 1, next_unit));
  }
  BlockActivations<T>& kept(std::size_t layer) { return blocks_[blocks_.size() == 1 ? 0 : layer]; }
  bool packs() const { return std::is_same_v<T, float> && precision_ != Precision::f32 && !recompute_; }

  const ModelConfig config_;
  const BatchShape shape_;
  const bool recompute_;
  const Precision precision_;
  Backend<T>& backend_;
  std::vector<Array<T>> streams_;                // the residual stream before each block, and behind the last
  std::vector<BlockActivations<T>> blocks_;
  std::vector<PackedActivations> packed_;        // of each block where packs(); then there is one of blocks_
  BlockScratch<T> scratch_;
  Array<T> last_norm_, mean_, scale_;            // of the final norm
  Array<T> logits_, losses_, log_sums_, d_stream_;
};

}  // namespace tutti::trainer
