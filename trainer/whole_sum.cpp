#include "trainer/whole_sum.h"

#include "trainer/precision.h"

namespace tutti::trainer {

WholeSum::WholeSum(const Layout& layout, const Shares& shares, Wire& wire, Threads& threads, std::size_t bucket_bytes, bool narrow)
    : layout_(layout), shares_(shares), wire_(wire), threads_(threads), bucket_bytes_(bucket_bytes), sum_(layout),
      narrow_(narrow && wire.rank_count() > 1 ? layout.count() : 0) {}

void WholeSum::begin(std::size_t, bool, bool last) {
  if (first_) sum_.restart();
  first_ = false;
  last_ = last;
  bucket_end_ = layout_.units().size();
}

void WholeSum::end() {}

void WholeSum::finished(std::size_t unit) {
  sum_.finished(unit);
  if (!last_) return;
  const Unit first = layout_.units()[unit], behind = layout_.units()[bucket_end_ - 1];
  const std::size_t count = behind.offset + behind.count - first.offset;
  if (count * sizeof(float) < bucket_bytes_ && unit > 0) return;
  if (shares_.owners() == 1) exchange(unit, first.offset, count);
  else for (std::size_t i = unit; i < bucket_end_; ++i) exchange(i, layout_.units()[i].offset, layout_.units()[i].count);
  bucket_end_ = unit;
}

void WholeSum::exchange(std::size_t unit, std::size_t first, std::size_t count) {
  float* wide = sum_.data().data() + first;
  std::uint16_t* narrow = narrow_.empty() ? nullptr : narrow_.data() + first;
  if (narrow) {
    threads_.ranges(count, 1 << 14, [&](std::size_t begin, std::size_t end) { pack(Precision::bf16, end - begin, wide + begin, narrow + begin); });
  }
  void* data = narrow ? static_cast<void*>(narrow) : wide;
  const DataType type = narrow ? DataType::bf16 : DataType::f32;
  exchanges_.push_back({first, count, shares_.owners() == 1 ? wire_.sum("sum of gradients", data, count, type)
                                                            : wire_.sum_blocks("sum of gradients", data, shares_.counts(unit), type)});
}

void WholeSum::finish() {
  for (Exchange& exchange : exchanges_) {
    wire_.wait(exchange.work);
    if (narrow_.empty()) continue;
    threads_.ranges(exchange.count, 1 << 14, [&](std::size_t begin, std::size_t end) {
      unpack(Precision::bf16, end - begin, narrow_.data() + exchange.first + begin, sum_.data().data() + exchange.first + begin);
    });
  }
  exchanges_.clear();
  first_ = true;
}

float* WholeSum::owned(std::size_t unit) { return sum_.data().data() + layout_.units()[unit].offset + shares_.mine(unit).begin; }

}  // namespace tutti::trainer
