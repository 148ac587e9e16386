#include "trainer/whole_sum.h"

namespace tutti::trainer {

WholeSum::WholeSum(const Layout& layout, const Shares& shares, Wire& wire, Backend<float>& backend, std::size_t bucket_bytes, bool narrow)
    : layout_(layout), shares_(shares), wire_(wire), backend_(backend), bucket_bytes_(bucket_bytes), sum_(backend, layout.count()),
      narrow_(backend, narrow && wire.rank_count() > 1 ? layout.count() : 0) {}

void WholeSum::begin(std::size_t, bool, bool last) {
  if (first_) fresh_ = true;
  first_ = false;
  last_ = last;
  bucket_end_ = layout_.units().size();
}

void WholeSum::end() {}

void WholeSum::finished(std::size_t unit) {
  if (unit == 0) fresh_ = false;
  if (!last_) return;
  const Unit first = layout_.units()[unit], behind = layout_.units()[bucket_end_ - 1];
  const std::size_t count = behind.offset + behind.count - first.offset;
  if (count * sizeof(float) < bucket_bytes_ && unit > 0) return;
  if (shares_.owners() == 1) exchange(unit, first.offset, count);
  else for (std::size_t i = unit; i < bucket_end_; ++i) exchange(i, layout_.units()[i].offset, layout_.units()[i].count);
  bucket_end_ = unit;
}

void WholeSum::exchange(std::size_t unit, std::size_t first, std::size_t count) {
  float* wide = sum_.data() + first;
  std::uint16_t* narrow = narrow_.empty() ? nullptr : narrow_.data() + first;
  if (narrow) backend_.pack(Precision::bf16, count, wide, narrow);
  void* data = narrow ? static_cast<void*>(narrow) : wide;
  const DataType type = narrow ? DataType::bf16 : DataType::f32;
  buckets_.push_back({first, count, shares_.owners() == 1 ? wire_.sum("sum of gradients", data, count, type)
                                                            : wire_.sum_blocks("sum of gradients", data, shares_.counts(unit), type)});
}

void WholeSum::finish() {
  for (Bucket& bucket : buckets_) {
    wire_.wait(bucket.exchange);
    if (!narrow_.empty()) backend_.unpack(Precision::bf16, bucket.count, narrow_.data() + bucket.first, sum_.data() + bucket.first);
  }
  buckets_.clear();
  first_ = true;
}

float* WholeSum::owned(std::size_t unit) { return sum_.data() + layout_.units()[unit].offset + shares_.mine(unit).begin; }

}  // namespace tutti::trainer
