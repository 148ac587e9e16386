#pragma once
// Small models, one for each option, and a batch for them.
#include <vector>
#include "trainer/layout.h"
#include "trainer/model.h"
#include "trainer/random.h"

namespace tutti::trainer::test {

inline ModelConfig small() {
  ModelConfig c;
  c.layers = 2, c.heads = c.kv_heads = 2, c.width = 8, c.hidden = 12, c.vocabulary = 11, c.context = 6;
  return c;
}

struct Case {
  const char* name;
  ModelConfig config;
  float dropout = 0;
  bool recompute = false;
};

inline std::vector<Case> cases() {
  std::vector<Case> all = {{"gpt2", small()}, {"no_bias", small()}, {"rope", small()}, {"rms", small()}, {"swiglu", small()},
                           {"grouped", small()}, {"llama", small()}, {"dropout", small(), 0.2f}, {"recompute", small(), 0.2f, true}};
  all[1].config.bias = false;
  all[2].config.position = PositionKind::rope;
  all[3].config.norm = NormKind::rms;
  all[4].config.activation = ActivationKind::swiglu;
  all[5].config.kv_heads = 1;
  ModelConfig& llama = all[6].config;
  llama.bias = false, llama.position = PositionKind::rope, llama.norm = NormKind::rms, llama.activation = ActivationKind::swiglu;
  llama.kv_heads = 1;
  return all;
}

inline constexpr BatchShape kShape{2, 5};
inline const std::vector<Token> kTokens = {1, 3, 10, 0, 3, 7, 7, 2, 9, 4}, kTargets = {3, 10, 0, 3, 5, 7, 2, 9, 4, 1};

template <class T>
void fill(const Layout& layout, std::vector<T>& weights) {
  for (const Tensor& tensor : layout.tensors()) {
    const auto begin = layout.units()[tensor.unit].offset + tensor.offset;
    for (std::size_t i = 0; i < tensor.count(); ++i) weights[begin + i] = T(float(0.4 * normal(begin, i) + tensor.start));
  }
}

}  // namespace tutti::trainer::test
