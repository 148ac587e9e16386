#pragma once
// The sum of gradients over all micro-batches of a step, on all ranks. Three ways to it, which differ in memory, in traffic and in
// the order of additions:
//   whole_sum.h   whole gradients on each rank, exchanged once a step, bucket by bucket while backward goes on   (DDP, ZeRO-1)
//   shard_sum.h   each rank keeps its share only; exchanged at each micro-batch                                  (ZeRO-2, ZeRO-3)
//   tree_sum.h    one tree of additions over the micro-batches' numbers, whatever the number of ranks            (--deterministic)
#include <cstddef>

#include "trainer/store.h"

namespace tutti::trainer {

class GradientSum : public GradientSink<float> {
 public:
  // Around each forward and backward of this rank. `number` counts over all ranks; `counts` false: the rank computes only so that
  // all ranks take part in as many exchanges, and its gradient is 0. `last`: the rank's last of this step.
  virtual void begin(std::size_t number, bool counts, bool last) = 0;
  virtual void end() = 0;
  // Behind the last micro-batch: the sum is complete in owned().
  virtual void finish() = 0;
  // This rank's share of a unit's sum, until the next begin().
  virtual float* owned(std::size_t unit) = 0;
  virtual std::size_t bytes() const = 0;      // of memory
};

}  // namespace tutti::trainer
