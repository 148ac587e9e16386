#pragma once
// See gradient_sum.h. Micro-batches add up in one array; in the last one, as soon as backward has finished all units of a bucket,
// its exchange begins and goes on beside the rest of the backward pass.
#include <vector>

#include "trainer/backend.h"
#include "trainer/gradient_sum.h"
#include "trainer/shares.h"
#include "trainer/wire.h"

namespace tutti::trainer {

class WholeSum : public GradientSum {
 public:
  // `bucket_bytes`: units are put together until a bucket has so many, to save messages. Buckets hold whole units.
  // `narrow`: gradients are rounded to bf16 for the exchange.
  WholeSum(const Layout& layout, const Shares& shares, Wire& wire, Backend<float>& backend, std::size_t bucket_bytes, bool narrow);
  void begin(std::size_t number, bool counts, bool last) override;
  void end() override;
  void finish() override;
  GradientPlace<float> gradient(std::size_t unit) override { return {sum_.data() + layout_.units()[unit].offset, fresh_}; }
  void finished(std::size_t unit) override;
  float* owned(std::size_t unit) override;
  std::size_t bytes() const override { return sum_.bytes() + narrow_.bytes(); }

 private:
  // Numbers [first, first + count) of the flat array, and the sum that is theirs when `exchange` is done.
  struct Bucket {
    std::size_t first, count;
    Exchange exchange;
  };
  void exchange(std::size_t unit, std::size_t first, std::size_t count);      // a unit's blocks, or a bucket whole
  const Layout& layout_;
  const Shares& shares_;
  Wire& wire_;
  Backend<float>& backend_;
  const std::size_t bucket_bytes_;
  Array<float> sum_;
  bool fresh_ = true;                 // sum_ counts nothing yet
  std::size_t bucket_end_ = 0;        // the first unit that is in an earlier bucket
  bool first_ = true, last_ = false;
  std::vector<Bucket> buckets_;
  Array<std::uint16_t> narrow_;         // the flat array in bf16; empty unless wanted
};

}  // namespace tutti::trainer
