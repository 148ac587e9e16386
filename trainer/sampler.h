#pragma once
// Which sample stands where: a pure function of (seed, epoch, place). Samples are windows of context + 1 tokens that lie one behind
// another (the last token of one is the first of the next); an epoch visits each once, in an order of its own. The number of ranks
// does not come in, nothing has to be set at the start of an epoch, and any step can be looked up by itself.
#include <cstddef>
#include <cstdint>
#include <string>

namespace tutti::trainer {

class Sampler {
 public:
  // `batch`: samples of a step over all ranks. `drop_last`: an epoch has whole steps only, what is left over is not seen in it;
  // else the steps run on across the end of an epoch and every sample is seen once.
  Sampler(std::uint64_t seed, std::size_t tokens, std::size_t context, std::size_t batch, bool drop_last);
  std::size_t samples() const { return samples_; }
  std::size_t samples_an_epoch() const { return drop_last_ ? samples_ / batch_ * batch_ : samples_; }
  std::size_t epoch_of(std::size_t step) const { return step * batch_ / samples_an_epoch(); }
  // Where sample `i` (below batch) of step `step` (from 0) begins among the tokens.
  std::size_t token_at(std::size_t step, std::size_t i) const;
  // Place `place` of an epoch's order: a permutation of [0, samples).
  std::size_t sample_at(std::size_t epoch, std::size_t place) const;
  // Of the epoch's order (its first 4096 places): equal orders have equal ones.
  std::uint64_t order_hash(std::size_t epoch) const;
  // "1562 samples of 64 tokens; 48 steps an epoch, 26 samples left over run into the next".
  std::string text() const;

 private:
  const std::uint64_t seed_;
  const std::size_t context_, samples_, batch_;
  const bool drop_last_;
};

}  // namespace tutti::trainer
