#pragma once
// One block of the Transformer: attention and MLP, each behind a norm and added to the residual stream.
#include <cstdint>
#include <functional>

#include "trainer/backend.h"
#include "trainer/layout.h"

namespace tutti::trainer {

// The fixed shape that a model calculates with.
struct BatchShape {
  std::size_t samples, context;
  std::size_t rows() const { return samples * context; }
};

// What the forward pass of a block leaves for its backward pass.
template <class T>
struct BlockActivations {
  BlockActivations(Device& device, const ModelConfig& config, BatchShape shape);
  Array<T> norm1, qkv, log_sums, attention, middle, norm2, up, active;
  Array<T> mean1, scale1, mean2, scale2;
  std::size_t bytes() const;
};

// The large ones in 16 bits: what waits for the backward pass where products are of that precision. Nothing is lost by it but in
// `up`, which the activation would else see in f32: block_forward rounds it before.
class PackedActivations {
 public:
  PackedActivations(Device& device, const BlockActivations<float>& like);
  void keep(Backend<float>& backend, Precision precision, const BlockActivations<float>& a);
  void restore(Backend<float>& backend, Precision precision, BlockActivations<float>& a) const;
  std::size_t bytes() const { return numbers_.bytes() + rest_.bytes(); }

 private:
  Array<std::uint16_t> numbers_;
  Array<float> rest_;
};

// Room for gradients of activations, shared by all blocks.
template <class T>
struct BlockScratch {
  BlockScratch(Device& device, const ModelConfig& config, BatchShape shape);
  Array<T> branch, width, qkv, up, active;
};

// out = the block's output for its input x, both [rows][width].
template <class T>
void block_forward(Backend<T>& backend, const ModelConfig& config, BatchShape shape, const Dropout& dropout,
                   const BlockTensors<const T>& w, const T* x, BlockActivations<T>& a, T* out, Precision precision);

// Hears from where on all of the block's gradients are in their places.
template <class T>
using FinishedFrom = std::function<void(const T* from)>;

// Its two halves, the MLP's first: dx comes as the gradient for the output and becomes that for the input. `finished` hears of each
// product's weights as soon as they are there: the first half ends with norm2 and all behind it, the second with all of the block.
template <class T>
void mlp_backward(Backend<T>& backend, const ModelConfig& config, BatchShape shape, const Dropout& dropout, const BlockTensors<const T>& w,
                  const BlockActivations<T>& a, BlockScratch<T>& scratch, T* dx, const BlockTensors<T>& d, T beta,
                  Precision precision, const FinishedFrom<T>& finished);
template <class T>
void self_attention_backward(Backend<T>& backend, const ModelConfig& config, BatchShape shape, const Dropout& dropout,
                             const BlockTensors<const T>& w, const T* x, const BlockActivations<T>& a, BlockScratch<T>& scratch, T* dx,
                             const BlockTensors<T>& d, T beta, Precision precision, const FinishedFrom<T>& finished);

}  // namespace tutti::trainer
