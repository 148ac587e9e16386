#include "transport/rdma/landed.h"

#include "transport/rdma/connection.h"

namespace tutti::transport::rdma {

Landed* LandedPool::take() {
  if (free_.empty()) {
    all_.push_back(std::make_unique<Landed>());
    free_.push_back(all_.back().get());
  }
  Landed* landed = free_.back();
  free_.pop_back();
  return landed;
}

void LandedPool::release(std::uint64_t token) {
  auto* landed = reinterpret_cast<Landed*>(static_cast<std::uintptr_t>(token));
  if (landed->owner) landed->owner->released(*landed);
  landed->owner = nullptr;
  landed->message.reset();
  copied_bytes_ -= landed->copy.size();
  landed->copy.clear();                   // the capacity stays, for the next
  free_.push_back(landed);
}

void LandedPool::forget(const RdmaConnection* owner) {
  for (const auto& landed : all_)
    if (landed->owner == owner) landed->owner = nullptr;
}

}  // namespace tutti::transport::rdma
