#include "trainer/whole_sum.h"

#include <algorithm>
#include <utility>

namespace tutti::trainer {
namespace {

// What is still to be sent when backward ends is waited for: the block that it ends with goes in smaller parts.
constexpr std::size_t kLastBlockDivisor = 8;

}  // namespace

WholeSum::WholeSum(const Layout& layout, const Shares& shares, Wire& wire, Backend<float>& backend, EmbeddingRows rows, std::size_t bucket_bytes,
                   bool narrow)
    : layout_(layout), shares_(shares), wire_(wire), backend_(backend), rows_(std::move(rows)), bucket_bytes_(bucket_bytes),
      sum_(backend, layout.count(), wire.memory()), narrow_(backend, narrow && wire.rank_count() > 1 ? layout.count() : 0, wire.memory()) {}

void WholeSum::begin(std::size_t, bool, bool last) {
  last_ = last;
  sent_ = layout_.count();
}

void WholeSum::end() {}

bool WholeSum::head_finished() {
  apart_ = last_ && rows_.worth_it();
  if (!apart_) return false;
  if (fresh_) rows_.clear_positions(sum_.data());
  exchange(0, layout_.units()[0].count);
  return true;
}

void WholeSum::finished(std::size_t unit, std::size_t from) {
  if (unit == 0) fresh_ = false;
  const std::size_t first = layout_.units()[unit].offset + from, last_of_all = apart_ ? layout_.units()[0].count : 0;
  if (!last_ || first < last_of_all) return;
  const std::size_t enough = unit > 1 ? bucket_bytes_ : bucket_bytes_ / kLastBlockDivisor;
  if ((sent_ - first) * sizeof(float) < enough && first > last_of_all) return;
  exchange(first, sent_);
  sent_ = first;
}

// Owners' parts differ from unit to unit.
void WholeSum::exchange(std::size_t first, std::size_t end) {
  if (first == end) return;
  float* wide = sum_.data() + first;
  std::uint16_t* narrow = narrow_.empty() ? nullptr : narrow_.data() + first;
  if (narrow) backend_.pack(Precision::bf16, end - first, wide, narrow);
  std::byte* data = narrow ? reinterpret_cast<std::byte*>(narrow) : reinterpret_cast<std::byte*>(wide);
  const DataType type = narrow ? DataType::bf16 : DataType::f32;
  Bucket bucket{first, end - first, {}};
  if (shares_.owners() == 1) {
    bucket.exchanges.push_back(wire_.sum("sum of gradients", data, end - first, type));
  } else {
    for (std::size_t i = 0; i < layout_.units().size(); ++i) {
      const Unit unit = layout_.units()[i];
      const std::size_t begin = std::max(first, unit.offset), behind = std::min(end, unit.offset + unit.count);
      if (begin >= behind) continue;
      bucket.exchanges.push_back(wire_.sum_blocks("sum of gradients", data + (begin - first) * size_of(type),
                                                  shares_.counts(i, begin - unit.offset, behind - unit.offset), type));
    }
  }
  buckets_.push_back(std::move(bucket));
}

void WholeSum::finish() {
  for (Bucket& bucket : buckets_) {
    for (Exchange& exchange : bucket.exchanges) wire_.wait(exchange);
    if (!narrow_.empty()) backend_.unpack(Precision::bf16, bucket.count, narrow_.data() + bucket.first, sum_.data() + bucket.first);
  }
  buckets_.clear();
  if (std::exchange(apart_, false)) rows_.add_to(sum_.data());
  fresh_ = true;
}

float* WholeSum::owned(std::size_t unit) { return sum_.data() + layout_.units()[unit].offset + shares_.mine(unit).begin; }

}  // namespace tutti::trainer
