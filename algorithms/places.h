#pragma once
// Places: where the chunks of one rank lie, which of them are the same in place, and what shape each has.
// It knows the collectives' buffers as schedule.h states them, and no step.
#include <cstdint>
#include <vector>
#include "algorithms/schedule.h"

namespace tutti::algorithms {

class Places {
 public:
  static constexpr std::uint32_t kNone = UINT32_MAX;

  // Reads blocks, slices and scratch of `schedule`.
  Places(const Request& request, bool in_place, int rank, const Schedule& schedule);

  // The place of a chunk, in 0..count()-1; kNone when this rank has no such chunk.
  std::uint32_t at(Space space, std::uint32_t index) const;
  std::uint32_t count() const { return std::uint32_t(shapes_.size()); }
  // Shape of a chunk that at() knows. By name, not by place: an all_to_all in place has (me, peer) and (peer, me) in
  // one place.
  std::uint32_t shape(Space space, std::uint32_t index) const;
  std::uint32_t inputs() const { return inputs_; }   // chunks that the input has on this rank
  std::uint32_t outputs() const { return outputs_; }
  // Chunks of one vector as Cost means it, for weights.
  static std::uint32_t chunks_of_n(const Request& request, const Schedule& schedule);

 private:
  std::uint32_t inputs_ = 0, outputs_ = 0;
  std::uint32_t alias_first_ = 0, alias_count_ = 0;   // input[alias_first_ + i] is output[alias_output_ + i]
  std::uint32_t alias_output_ = 0;
  std::vector<std::uint32_t> shapes_;   // outputs, inputs, scratch; aliased inputs keep their number unused as a place
};

}  // namespace tutti::algorithms
