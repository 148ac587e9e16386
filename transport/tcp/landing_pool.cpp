#include "transport/tcp/landing_pool.h"

#include <bit>
#include <new>

#include "core/check.h"
#include "transport/tcp/frame.h"
#include "transport/tcp/incoming.h"

namespace tutti::transport::tcp {
namespace {

constexpr std::align_val_t kAlignment{64};

}  // namespace

LandingPool::~LandingPool() {
  for (auto& landing : all_) ::operator delete[](landing->data, kAlignment);
}

unsigned LandingPool::class_of(std::size_t bytes) {
  if (bytes <= (1u << kSmallest)) return 0;
  return static_cast<unsigned>(std::bit_width(bytes - 1)) - kSmallest;
}

Landing* LandingPool::take(std::size_t bytes, bool eager) {
  static_assert((std::size_t{1} << (kSmallest + kClasses - 1)) == kMaxPayload);
  const unsigned size_class = class_of(bytes);
  TUTTI_CHECK(size_class < kClasses);
  const std::size_t capacity = std::size_t{1} << (kSmallest + size_class);
  auto& free = free_[size_class];
  if (free.empty()) {
    trim(limit_ + eager_ + (eager ? capacity : 0), capacity);
    if (empty_.empty()) {
      all_.push_back(std::make_unique<Landing>());
      empty_.push_back(all_.back().get());
    }
    Landing* fresh = empty_.back();
    empty_.pop_back();
    fresh->data = static_cast<std::byte*>(::operator new[](capacity, kAlignment));
    fresh->capacity = capacity;
    memory_ += capacity;
    free.push_back(fresh);
  }
  Landing* landing = free.back();
  free.pop_back();
  landing->taken = true;
  landing->eager = eager;
  landing->owner = nullptr;
  (eager ? eager_ : granted_) += capacity;
  return landing;
}

void LandingPool::give_back(Landing* landing) {
  TUTTI_CHECK(landing->taken);
  landing->taken = false;
  (landing->eager ? eager_ : granted_) -= landing->capacity;
  free_[class_of(landing->capacity)].push_back(landing);
  trim(limit_ + eager_, 0);
}

void LandingPool::trim(std::size_t most, std::size_t wanted) {
  for (std::size_t i = kClasses; i-- > 0 && memory_ + wanted > most;) {
    while (!free_[i].empty() && memory_ + wanted > most) {
      Landing* landing = free_[i].back();
      free_[i].pop_back();
      ::operator delete[](landing->data, kAlignment);
      memory_ -= landing->capacity;
      landing->data = nullptr;
      empty_.push_back(landing);
    }
  }
}

void LandingPool::forget(const Incoming* owner) {
  for (auto& landing : all_) {
    if (landing->owner == owner) landing->owner = nullptr;
  }
}

void LandingPool::release(std::uint64_t token) {
  auto* landing = reinterpret_cast<Landing*>(static_cast<std::uintptr_t>(token));
  Incoming* owner = landing->owner;
  give_back(landing);
  if (owner) owner->released(*landing);
}

}  // namespace tutti::transport::tcp
