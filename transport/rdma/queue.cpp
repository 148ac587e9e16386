#include "transport/rdma/queue.h"

#include <utility>

#include "core/check.h"

namespace tutti::transport::rdma {

bool Queue::has_room(std::uint32_t writes, bool control) const {
  const std::uint32_t sends = control ? kSends : kSends - kControlSends;
  return usable_ && posted_count_ + writes <= sends;
}

void Queue::keep(const Posted& posted, std::uint32_t bytes, bool signaled) {
  TUTTI_CHECK(posted_count_ < kSends);
  posted_[sequence_ % kSends] = posted;
  ++posted_count_;
  unsignaled_ = signaled ? 0 : unsignaled_ + 1;
  ++sequence_;
  ++sent_;
  writes_ += !posted.cell;
  ++counters_.work_requests;
  counters_.bytes_out += bytes;
}

bool Queue::has_write_of(std::uint32_t communicator) const {
  return any_posted([&](const Posted& p) { return !p.cell && p.key.communicator == communicator; });
}

bool Queue::reads_memory_of(std::uint32_t communicator) const {
  return any_posted([&](const Posted& p) { return p.memory && p.key.communicator == communicator; });
}

bool Queue::take_completed(std::uint32_t sequence, Posted& out) {
  const std::uint32_t oldest = sequence_ - posted_count_;
  const std::uint32_t distance = (sequence - oldest) & ~kReceiveFlag;      // 31 bits of it travel
  return distance < posted_count_ && take_posted(out);
}

bool Queue::take_posted(Posted& out) {
  if (posted_count_ == 0) return false;
  out = std::exchange(posted(0), {});
  --posted_count_;
  writes_ -= !out.cell;
  return true;
}

void Queue::peer_posted(std::uint32_t receives) {
  if (std::int32_t(receives - peer_receives_) > 0) peer_receives_ = receives;
}

}  // namespace tutti::transport::rdma
