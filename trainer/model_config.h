#pragma once
// The shape of a model, as a value: what a checkpoint must agree with, and nothing about how it is trained.
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <tutti/status.h>
#include <vector>

#include "trainer/activation.h"
#include "trainer/norm.h"

namespace tutti::trainer {

enum class PositionKind : bool { learned, rope };

struct ModelConfig {
  std::size_t layers = 4, heads = 4, kv_heads = 4, width = 128;
  std::size_t hidden = 512;               // units between the two products of an MLP
  std::size_t vocabulary = 256, context = 64;
  PositionKind position = PositionKind::learned;
  NormKind norm = NormKind::layer;
  ActivationKind activation = ActivationKind::gelu;
  bool bias = true;                       // of the four products and of LayerNorm
  bool operator==(const ModelConfig&) const = default;

  std::size_t head_size() const { return width / heads; }
  std::size_t qkv_width() const { return (heads + 2 * kv_heads) * head_size(); }
  bool norm_bias() const { return bias && norm == NormKind::layer; }
  // Multiplications and additions that a training step needs for one token: forward once, backward twice that.
  double flops_per_token() const;
};

// "tiny", "10m", "gpt2-124m".
std::optional<ModelConfig> preset(std::string_view name);
std::vector<std::string> preset_names();

// invalid_argument: which size does not fit which.
Status check(const ModelConfig& config);

// One JSON object with the fields' names; the way back refuses unknown or missing ones.
std::string to_json(const ModelConfig& config);
Result<ModelConfig> model_config_from_json(const std::string& text);
// "layers 4 instead of 12, width ...": how `found` differs from `wanted`; empty when it does not.
std::string difference(const ModelConfig& wanted, const ModelConfig& found);

}  // namespace tutti::trainer
