#include "trainer/whole_sum.h"

namespace tutti::trainer {

WholeSum::WholeSum(const Layout& layout, const Shares& shares, Wire& wire, std::size_t bucket_bytes)
    : layout_(layout), shares_(shares), wire_(wire), bucket_bytes_(bucket_bytes), sum_(layout) {}

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
  if (shares_.owners() == 1) {
    works_.push_back(wire_.sum("sum of gradients", sum_.data().data() + first.offset, count));
  } else {
    for (std::size_t i = unit; i < bucket_end_; ++i) {
      works_.push_back(wire_.sum_blocks("sum of gradients", sum_.data().data() + layout_.units()[i].offset, shares_.counts(i)));
    }
  }
  bucket_end_ = unit;
}

void WholeSum::finish() {
  for (Work& work : works_) wire_.wait(work);
  works_.clear();
  first_ = true;
}

float* WholeSum::owned(std::size_t unit) { return sum_.data().data() + layout_.units()[unit].offset + shares_.mine(unit).begin; }

}  // namespace tutti::trainer
