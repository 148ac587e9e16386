#include "trainer/sampler.h"

#include <fmt/format.h>

#include <algorithm>

#include "trainer/failure.h"
#include "trainer/random.h"

namespace tutti::trainer {

Sampler::Sampler(std::uint64_t seed, std::size_t tokens, std::size_t context, std::size_t batch, bool drop_last)
    : seed_(seed), context_(context), samples_(tokens > 0 ? (tokens - 1) / context : 0), batch_(batch), drop_last_(drop_last) {
  if (samples_ == 0) refuse(fmt::format("the data has {} tokens, but one sample needs {} (context {} and one more)", tokens, context + 1, context));
  if (samples_ < batch_ && drop_last_) {
    refuse(fmt::format("the data has {} samples, a step takes {}: give more data, a smaller batch, or leave out --drop-last", samples_, batch_));
  }
}

std::size_t Sampler::token_at(std::size_t step, std::size_t i) const {
  const std::size_t place = step * batch_ + i;
  return sample_at(place / samples_an_epoch(), place % samples_an_epoch()) * context_;
}

// A Feistel network of four rounds over the next even number of bits (Luby and Rackoff 1988), walked until it falls into the range.
std::size_t Sampler::sample_at(std::size_t epoch, std::size_t place) const {
  int half = 1;
  while ((std::size_t(1) << (2 * half)) < samples_) ++half;
  const std::uint64_t mask = (std::uint64_t(1) << half) - 1, key = mix(seed_, epoch);
  do {
    std::uint64_t left = place >> half, right = place & mask;
    for (std::uint64_t round = 0; round < 4; ++round) {
      const std::uint64_t next = left ^ (mix(key + round, right) & mask);
      left = right;
      right = next;
    }
    place = std::size_t(left << half | right);
  } while (place >= samples_);
  return place;
}

std::uint64_t Sampler::order_hash(std::size_t epoch) const {
  std::uint64_t hash = samples_;
  for (std::size_t place = 0; place < std::min<std::size_t>(samples_, 4096); ++place) hash = mix(hash, sample_at(epoch, place));
  return hash;
}

std::string Sampler::text() const {
  const std::size_t left = samples_ % batch_;
  const std::string tail = left == 0    ? "none left over"
                           : drop_last_ ? fmt::format("{} of an epoch's samples are dropped", left)
                                        : fmt::format("{} samples left over begin the step that runs into the next epoch", left);
  if (samples_ < batch_) return fmt::format("{} samples of {} tokens, {} a step: warning: a step has samples more than once", samples_, context_, batch_);
  return fmt::format("{} samples of {} tokens, {} a step: {} whole steps an epoch, {}", samples_, context_, batch_, samples_ / batch_, tail);
}

}  // namespace tutti::trainer
