#pragma once
// Where each tensor of a model lies in one flat array. The array is a row of units, in the order of the forward pass:
//   unit 0: the embedding tables; 1 ... layers: the blocks, the last one with the final norm behind it.
// A unit is what is exchanged, gathered and released as a whole. It begins and ends on a multiple of kBlock numbers; the padding is 0.
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "trainer/model_config.h"

namespace tutti::trainer {

// Units are shared out among ranks, and norms are summed, in blocks of so many numbers.
inline constexpr std::size_t kBlock = 1024;

struct Tensor {
  std::string name;                     // as in Hugging Face's GPT-2
  std::vector<std::size_t> shape;
  std::size_t offset;                   // from the unit's begin
  std::size_t unit;
  bool decays;                          // weight decay is for matrices
  double deviation;                     // of the normal distribution that it starts with; 0: see `start`
  double start;
  std::size_t count() const;
};

struct Unit {
  std::size_t offset, count;            // in the flat array; multiples of kBlock
};

class Layout {
 public:
  explicit Layout(const ModelConfig& config);
  const std::vector<Tensor>& tensors() const { return tensors_; }
  const std::vector<Unit>& units() const { return units_; }
  std::size_t count() const { return units_.back().offset + units_.back().count; }   // padding included
  std::size_t parameters() const;                                                    // padding left out

 private:
  void add(const std::string& name, std::vector<std::size_t> shape, bool decays, double deviation, double start = 0);
  void add_norm(const ModelConfig& config, const std::string& name);
  void add_linear(const ModelConfig& config, const std::string& name, std::size_t inputs, std::size_t outputs, double deviation);
  void end_unit();
  std::vector<Tensor> tensors_;
  std::vector<Unit> units_;
  std::size_t filled_ = 0;              // of the unit being laid out
};

// The tensors of a unit by role, from its begin: what the model calculates with. Null where the model has none.
template <class T>
struct EmbeddingTensors {
  T *table = nullptr, *positions = nullptr;
};
template <class T>
struct BlockTensors {
  T *norm1 = nullptr, *norm1_bias = nullptr, *qkv = nullptr, *qkv_bias = nullptr, *joint = nullptr, *joint_bias = nullptr;
  T *norm2 = nullptr, *norm2_bias = nullptr, *up = nullptr, *up_bias = nullptr, *down = nullptr, *down_bias = nullptr;
  T *last_norm = nullptr, *last_norm_bias = nullptr;      // of the last block
};
template <class T>
EmbeddingTensors<T> embedding_tensors(const ModelConfig& config, T* begin);
template <class T>
BlockTensors<T> block_tensors(const ModelConfig& config, std::size_t layer, T* begin);

// Fills a unit with the weights that training starts from: a pure function of the seed.
void start_weights(const Layout& layout, std::uint64_t seed, std::size_t unit, float* begin);

}  // namespace tutti::trainer
