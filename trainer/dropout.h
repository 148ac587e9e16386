#pragma once
// Dropout whose choices are a pure function of (key, sample, place): the same on any number of ranks, and again when a block is
// recomputed in the backward pass.
#include <cstddef>
#include <cstdint>

#include "trainer/random.h"
#include "trainer/threads.h"

namespace tutti::trainer {

struct Dropout {
  float rate = 0;                     // share that is dropped, below 1; 0 switches it off
  std::uint64_t key = 0;              // of the seed, the step, the layer and the place in it
  std::uint64_t first_sample = 0;     // number of the batch's first sample within the step, over all ranks

  // The same batch at another place of the model.
  constexpr Dropout at(std::uint64_t place) const { return {rate, mix(key, place), first_sample}; }
  constexpr std::uint64_t key_of_sample(std::size_t sample) const { return mix(key, first_sample + sample); }
  // What the number at `position` of a sample is multiplied by.
  constexpr float factor(std::uint64_t sample_key, std::uint64_t position) const {
    return uniform(sample_key, position) < rate ? 0.0f : 1.0f / (1.0f - rate);
  }
};

// x times its factors, in place; samples of `length` numbers. Also the gradient.
template <class T>
void drop(Threads& threads, const Dropout& dropout, std::size_t samples, std::size_t length, T* x) {
  if (dropout.rate == 0) return;
  threads.each(samples, [&](std::size_t sample) {
    const std::uint64_t key = dropout.key_of_sample(sample);
    for (std::size_t i = 0; i < length; ++i) x[sample * length + i] *= T(dropout.factor(key, i));
  });
}

}  // namespace tutti::trainer
