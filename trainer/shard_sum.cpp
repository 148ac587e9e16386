#include "trainer/shard_sum.h"

#include <algorithm>

#include "trainer/precision.h"

namespace tutti::trainer {

ShardSum::ShardSum(const Layout& layout, const Shares& shares, Wire& wire, bool narrow)
    : layout_(layout), shares_(shares), wire_(wire), narrow_(narrow && wire.rank_count() > 1) {
  for (std::size_t unit = 0; unit < layout.units().size(); ++unit) {
    sums_.emplace_back(shares.mine(unit).count);
    Room& room = room_of(unit);
    room.data.resize(std::max(room.data.size(), layout.units()[unit].count));
    if (narrow_) room.narrow.resize(room.data.size());
  }
}

std::size_t ShardSum::bytes() const {
  const std::size_t rooms = embedding_.data.size() + blocks_[0].data.size() + blocks_[1].data.size();
  return sizeof(float) * (shares_.owned() + rooms) + (narrow_ ? rooms * sizeof(std::uint16_t) : 0);
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
  const std::vector<std::size_t> counts = shares_.counts(unit);
  if (narrow_) {
    pack(Precision::bf16, layout_.units()[unit].count, room.data.data(), room.narrow.data());
    room.work = wire_.sum_blocks("sum of gradients", room.narrow.data(), counts, DataType::bf16);
  } else {
    room.work = wire_.sum_blocks("sum of gradients", room.data.data(), counts);
  }
  room.in_flight = true;
  room.unit = unit;
}

void ShardSum::settle(Room& room) {
  if (!room.in_flight) return;
  wire_.wait(room.work);
  room.in_flight = false;
  const Share share = shares_.mine(room.unit);
  float* sum = sums_[room.unit].data();
  float* part = room.data.data() + share.begin;
  if (narrow_) unpack(Precision::bf16, share.count, room.narrow.data() + share.begin, part);
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
