#pragma once
// See gradient_sum.h. Micro-batches add up in one array; in the last one, as soon as backward has finished all units of a bucket,
// its exchange begins and goes on beside the rest of the backward pass.
#include <vector>

#include "trainer/gradient_sum.h"
#include "trainer/shares.h"
#include "trainer/wire.h"

namespace tutti::trainer {

class WholeSum : public GradientSum {
 public:
  // `bucket_bytes`: units are put together until a bucket has so many, to save messages. Buckets hold whole units.
  WholeSum(const Layout& layout, const Shares& shares, Wire& wire, std::size_t bucket_bytes);
  void begin(std::size_t number, bool counts, bool last) override;
  void end() override;
  void finish() override;
  GradientPlace<float> gradient(std::size_t unit) override { return sum_.gradient(unit); }
  void finished(std::size_t unit) override;
  float* owned(std::size_t unit) override;
  std::size_t bytes() const override { return sum_.data_bytes(); }

 private:
  const Layout& layout_;
  const Shares& shares_;
  Wire& wire_;
  const std::size_t bucket_bytes_;
  WholeGradients<float> sum_;
  std::size_t bucket_end_ = 0;        // the first unit that is in an earlier bucket
  bool first_ = true, last_ = false;
  std::vector<Work> works_;
};

}  // namespace tutti::trainer
