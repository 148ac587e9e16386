#pragma once
// Text from a model, token by token. Each token is a forward pass over the whole window: simple, and fast enough to look at samples.
#include <cstdint>
#include <vector>

#include "trainer/model.h"

namespace tutti::trainer {

struct Taste {
  double temperature = 0.8;           // 0: always the likeliest token
  std::size_t top = 40;               // only so many of the likeliest; 0: all
  std::uint64_t seed = 1;
};

// Which token follows, given logits of `count`; `place` counts the draws of a seed.
Token draw(const float* logits, std::size_t count, const Taste& taste, std::uint64_t place);

// `tokens` with `count` more behind them. Only the last config.context are seen by the model.
std::vector<Token> continued(const ModelConfig& config, WeightSource<float>& weights, Threads& threads, std::vector<Token> tokens,
                             std::size_t count, const Taste& taste);

}  // namespace tutti::trainer
