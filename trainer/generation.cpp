#include "trainer/generation.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "trainer/host_backend.h"
#include "trainer/random.h"

namespace tutti::trainer {

Token draw(const float* logits, std::size_t count, const Taste& taste, std::uint64_t place) {
  std::vector<std::size_t> order(count);
  std::iota(order.begin(), order.end(), std::size_t(0));
  const std::size_t kept = taste.temperature == 0 ? 1 : taste.top == 0 ? count : std::min(taste.top, count);
  std::partial_sort(order.begin(), order.begin() + std::ptrdiff_t(kept), order.end(),
                    [&](std::size_t a, std::size_t b) { return logits[a] != logits[b] ? logits[a] > logits[b] : a < b; });
  if (kept == 1) return Token(order[0]);
  std::vector<double> sums;
  for (std::size_t i = 0; i < kept; ++i) {
    const double p = std::exp((double(logits[order[i]]) - double(logits[order[0]])) / taste.temperature);
    sums.push_back(p + (sums.empty() ? 0 : sums.back()));
  }
  const double at = uniform(taste.seed, place) * sums.back();
  const auto found = std::upper_bound(sums.begin(), sums.end(), at) - sums.begin();
  return Token(order[std::min(std::size_t(found), kept - 1)]);
}

std::vector<Token> continued(const ModelConfig& config, WeightSource<float>& weights, Threads& threads, std::vector<Token> tokens,
                             std::size_t count, const Taste& taste) {
  HostBackend<float> backend(threads);
  Model<float> model(config, {1, config.context}, true, backend);
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t seen = std::min(tokens.size(), config.context);
    std::vector<Token> window(tokens.end() - std::ptrdiff_t(seen), tokens.end());
    window.resize(config.context);      // what stands behind is not seen: attention is causal
    model.forward_logits(weights, window.data(), {});
    tokens.push_back(draw(model.logits().data() + (seen - 1) * config.vocabulary, config.vocabulary, taste, i));
  }
  return tokens;
}

}  // namespace tutti::trainer
