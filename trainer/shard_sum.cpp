#include "trainer/shard_sum.h"

#include <algorithm>

namespace tutti::trainer {

ShardSum::ShardSum(const Layout& layout, const Shares& shares, Wire& wire, Backend<float>& backend, EmbeddingRows rows, bool narrow)
    : layout_(layout), shares_(shares), wire_(wire), backend_(backend), rows_(std::move(rows)), narrow_(narrow && wire.rank_count() > 1) {
  std::size_t largest = 0;      // of the blocks
  for (std::size_t unit = 0; unit < layout.units().size(); ++unit) {
    sums_.emplace_back(backend, shares.mine(unit).count);
    if (unit > 0) largest = std::max(largest, layout.units()[unit].count);
  }
  const auto make = [&](Room& room, std::size_t count) {
    room.data = Array<float>(backend, count, wire.memory());
    if (narrow_) room.narrow = Array<std::uint16_t>(backend, count, wire.memory());
  };
  make(embedding_, layout.units()[0].count);
  for (std::size_t i = 0; i < std::min(blocks_.size(), layout.units().size() - 1); ++i) make(blocks_[(i + 1) % 2], largest);
}

std::size_t ShardSum::bytes() const {
  const std::size_t rooms = embedding_.data.size() + blocks_[0].data.size() + blocks_[1].data.size();
  return sizeof(float) * (shares_.owned() + rooms) + (narrow_ ? rooms * sizeof(std::uint16_t) : 0) + rows_.bytes();
}

void ShardSum::begin(std::size_t, bool, bool) {}

GradientPlace<float> ShardSum::gradient(std::size_t unit) {
  Room& room = room_of(unit);
  settle(room);
  // Padding that another unit left here must be 0 again.
  const std::size_t first = layout_.units()[unit].count - kBlock;
  backend_.clear(room.data.data() + first, (room.data.size() - first) * sizeof(float));
  return {room.data.data(), true};
}

bool ShardSum::head_finished() {
  if (!rows_.worth_it()) return false;
  rows_.clear_positions(embedding_.data.data());
  exchange(0);
  return true;
}

void ShardSum::finished(std::size_t unit, std::size_t from) {
  const bool on_its_way = unit == 0 && rows_.worth_it();
  if (from == 0 && !on_its_way) exchange(unit);
}

void ShardSum::exchange(std::size_t unit) {
  Room& room = room_of(unit);
  const std::vector<std::size_t> counts = shares_.counts(unit);
  if (narrow_) {
    backend_.pack(Precision::bf16, layout_.units()[unit].count, room.data.data(), room.narrow.data());
    room.exchange = wire_.sum_blocks("sum of gradients", room.narrow.data(), counts, DataType::bf16);
  } else {
    room.exchange = wire_.sum_blocks("sum of gradients", room.data.data(), counts);
  }
  room.in_flight = true;
  room.unit = unit;
}

void ShardSum::settle(Room& room) {
  if (!room.in_flight) return;
  wire_.wait(room.exchange);
  room.in_flight = false;
  const Share share = shares_.mine(room.unit);
  float* sum = sums_[room.unit].data();
  float* part = room.data.data() + share.begin;
  if (narrow_) backend_.unpack(Precision::bf16, share.count, room.narrow.data() + share.begin, part);
  if (room.unit == 0 && rows_.worth_it()) rows_.add_to(room.data.data());
  if (first_) backend_.copy(sum, part, share.count * sizeof(float));
  else backend_.add(share.count, part, sum);
}

void ShardSum::end() {
  settle(embedding_);
  for (Room& room : blocks_) settle(room);
  first_ = false;
}

void ShardSum::finish() { first_ = true; }

}  // namespace tutti::trainer
