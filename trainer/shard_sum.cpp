#include "trainer/shard_sum.h"

#include <algorithm>

namespace tutti::trainer {

ShardSum::ShardSum(const Layout& layout, const Shares& shares, Wire& wire) : layout_(layout), shares_(shares), wire_(wire) {
  for (std::size_t unit = 0; unit < layout.units().size(); ++unit) {
    sums_.emplace_back(shares.mine(unit).count);
    Room& room = room_of(unit);
    room.data.resize(std::max(room.data.size(), layout.units()[unit].count));
  }
}

std::size_t ShardSum::bytes() const {
  return sizeof(float) * (shares_.owned() + embedding_.data.size() + blocks_[0].data.size() + blocks_[1].data.size());
}

void ShardSum::begin(std::size_t, bool, bool) {}

GradientPlace<float> ShardSum::gradient(std::size_t unit) {
  Room& room = room_of(unit);
  settle(room);
  // Padding that another unit left here must be 0 again.
  std::fill(room.data.begin() + std::ptrdiff_t(layout_.units()[unit].count - kBlock), room.data.end(), 0.0f);
  return {room.data.data(), true};
}

void ShardSum::finished(std::size_t unit) {
  Room& room = room_of(unit);
  room.work = wire_.sum_blocks("sum of gradients", room.data.data(), shares_.counts(unit));
  room.in_flight = true;
  room.unit = unit;
}

void ShardSum::settle(Room& room) {
  if (!room.in_flight) return;
  wire_.wait(room.work);
  room.in_flight = false;
  const Share share = shares_.mine(room.unit);
  float* sum = sums_[room.unit].data();
  const float* part = room.data.data() + share.begin;
  if (first_) std::copy_n(part, share.count, sum);
  else for (std::size_t i = 0; i < share.count; ++i) sum[i] += part[i];
}

void ShardSum::end() {
  settle(embedding_);
  for (Room& room : blocks_) settle(room);
  first_ = false;
}

void ShardSum::finish() { first_ = true; }

}  // namespace tutti::trainer
