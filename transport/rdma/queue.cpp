#include "transport/rdma/queue.h"

#include <algorithm>

namespace tutti::transport::rdma {

bool Queue::has_room(std::uint32_t writes, bool control) const {
  const std::uint32_t sends = control ? kSends : kSends - kControlSends;
  return usable_ && posted_.size() + writes <= sends;
}

void Queue::keep(const Posted& posted, std::uint32_t bytes, bool signaled) {
  unsignaled_ = signaled ? 0 : unsignaled_ + 1;
  ++sequence_;
  ++sent_;
  writes_ += !posted.cell;
  posted_.push_back(posted);
  ++counters_.work_requests;
  counters_.bytes_out += bytes;
}

bool Queue::has_write_of(std::uint32_t communicator) const {
  return std::any_of(posted_.begin(), posted_.end(), [&](const Posted& p) { return !p.cell && p.key.communicator == communicator; });
}

bool Queue::reads_memory_of(std::uint32_t communicator) const {
  return std::any_of(posted_.begin(), posted_.end(), [&](const Posted& p) { return p.memory && p.key.communicator == communicator; });
}

bool Queue::take_completed(std::uint32_t sequence, Posted& out) {
  const std::uint32_t oldest = sequence_ - std::uint32_t(posted_.size());
  const std::uint32_t distance = (sequence - oldest) & ~kReceiveFlag;      // 31 bits of it travel
  return distance < posted_.size() && take_posted(out);
}

bool Queue::take_posted(Posted& out) {
  if (posted_.empty()) return false;
  out = std::move(posted_.front());
  posted_.pop_front();
  writes_ -= !out.cell;
  return true;
}

void Queue::peer_posted(std::uint32_t receives) {
  if (std::int32_t(receives - peer_receives_) > 0) peer_receives_ = receives;
}

}  // namespace tutti::transport::rdma
