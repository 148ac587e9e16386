#include "trainer/shared_weights.h"

#include <algorithm>

namespace tutti::trainer {

ResidentWeights::ResidentWeights(const Layout& layout, const Shares& shares, Wire& wire, Device& device)
    : layout_(layout), shares_(shares), wire_(wire), device_(device), whole_(device, layout.count(), shares.owners() > 1 ? wire.memory() : Memory::own) {}

void ResidentWeights::publish() {
  if (shares_.owners() == 1) return;
  std::vector<Exchange> exchanges;
  for (std::size_t unit = 0; unit < layout_.units().size(); ++unit) {
    exchanges.push_back(wire_.gather_blocks("gather of weights", at(unit), shares_.counts(unit)));
  }
  for (Exchange& exchange : exchanges) wire_.wait(exchange);
}

void ResidentWeights::set(std::size_t unit, const float* whole) {
  device_.upload(at(unit), whole, layout_.units()[unit].count * sizeof(float));
}

ShardedWeights::ShardedWeights(const Layout& layout, const Shares& shares, Wire& wire, Device& device)
    : layout_(layout), shares_(shares), wire_(wire), device_(device) {
  for (std::size_t unit = 0; unit < layout.units().size(); ++unit) owned_.emplace_back(device, shares.mine(unit).count);
}

ShardedWeights::Gathered& ShardedWeights::gather(std::size_t unit) {
  const auto found = gathered_.find(unit);
  if (found != gathered_.end()) return found->second;
  Gathered& place = gathered_[unit];
  place.data = room(layout_.units()[unit].count);
  device_.copy(place.data.data() + shares_.mine(unit).begin, owned_[unit].data(), owned_[unit].bytes());
  place.exchange = wire_.gather_blocks("gather of weights", place.data.data(), shares_.counts(unit));
  return place;
}

Array<float> ShardedWeights::room(std::size_t count) {
  const auto fits = std::find_if(free_.begin(), free_.end(), [&](const Array<float>& array) { return array.size() == count; });
  if (fits == free_.end()) {
    rooms_ += count;
    return Array<float>(device_, count, wire_.memory());
  }
  Array<float> taken = std::move(*fits);
  free_.erase(fits);
  return taken;
}

const float* ShardedWeights::weights(std::size_t unit, std::size_t next) {
  Gathered& wanted = gather(unit);
  gather(next);
  wire_.wait(wanted.exchange);
  return wanted.data.data();
}

void ShardedWeights::publish() {      // what is gathered is out of date
  for (auto& entry : gathered_) {
    wire_.wait(entry.second.exchange);
    free_.push_back(std::move(entry.second.data));
  }
  gathered_.clear();
}

void ShardedWeights::release(std::size_t unit) {
  const auto found = gathered_.find(unit);
  if (found == gathered_.end()) return;
  free_.push_back(std::move(found->second.data));
  gathered_.erase(found);
}

void ShardedWeights::set(std::size_t unit, const float* whole) {
  const Share share = shares_.mine(unit);
  device_.upload(owned_[unit].data(), whole + share.begin, share.count * sizeof(float));
}

std::size_t ShardedWeights::bytes() const { return (shares_.owned() + rooms_) * sizeof(float); }

}  // namespace tutti::trainer
