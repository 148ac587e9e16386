#include "trainer/shared_weights.h"

#include <algorithm>

namespace tutti::trainer {

ResidentWeights::ResidentWeights(const Layout& layout, const Shares& shares, Wire& wire)
    : layout_(layout), shares_(shares), wire_(wire), whole_(layout) {}

void ResidentWeights::publish() {
  if (shares_.owners() == 1) return;
  std::vector<Work> works;
  for (std::size_t unit = 0; unit < layout_.units().size(); ++unit) {
    works.push_back(wire_.gather_blocks("gather of weights", whole_.at(unit), shares_.counts(unit)));
  }
  for (Work& work : works) wire_.wait(work);
}

void ResidentWeights::set(std::size_t unit, const float* whole) { std::copy_n(whole, layout_.units()[unit].count, whole_.at(unit)); }

ShardedWeights::ShardedWeights(const Layout& layout, const Shares& shares, Wire& wire) : layout_(layout), shares_(shares), wire_(wire) {
  for (std::size_t unit = 0; unit < layout.units().size(); ++unit) owned_.emplace_back(shares.mine(unit).count);
}

ShardedWeights::Gathered& ShardedWeights::gather(std::size_t unit) {
  const auto found = gathered_.find(unit);
  if (found != gathered_.end()) return found->second;
  Gathered& place = gathered_[unit];
  place.data.resize(layout_.units()[unit].count);
  std::copy(owned_[unit].begin(), owned_[unit].end(), place.data.begin() + std::ptrdiff_t(shares_.mine(unit).begin));
  place.work = wire_.gather_blocks("gather of weights", place.data.data(), shares_.counts(unit));
  std::size_t held = 0;
  for (const auto& entry : gathered_) held += entry.second.data.size() * sizeof(float);
  most_ = std::max(most_, held);
  return place;
}

const float* ShardedWeights::weights(std::size_t unit, std::size_t next) {
  Gathered& wanted = gather(unit);
  gather(next);
  wire_.wait(wanted.work);
  return wanted.data.data();
}

void ShardedWeights::publish() {      // what is gathered is out of date
  for (auto& entry : gathered_) wire_.wait(entry.second.work);
  gathered_.clear();
}

void ShardedWeights::release(std::size_t unit) { gathered_.erase(unit); }

void ShardedWeights::set(std::size_t unit, const float* whole) {
  const Share share = shares_.mine(unit);
  std::copy_n(whole + share.begin, share.count, owned_[unit].data());
}

std::size_t ShardedWeights::bytes() const { return shares_.owned() * sizeof(float) + most_; }

}  // namespace tutti::trainer
