#include "transport/rdma/registrations.h"

#include <fmt/format.h>

#include <utility>

#include "core/log.h"
#include "transport/ranges.h"

namespace tutti::transport::rdma {

std::shared_ptr<const Registration> Registrations::find(const std::byte* data, std::uint64_t bytes) {
  const auto range = range_of(data, std::size_t(bytes));
  if (!range) return nullptr;
  if (const auto known = entries_.find(range->token); known != entries_.end()) {
    known->second.used = ++uses_;
    return known->second.registration;
  }
  purge();
  make_room();
  Entry entry{nullptr, ++uses_};
  auto* const first = const_cast<std::byte*>(range->data);
  if (range->of_gpu && (!gpu_ || !gpu_->direct())) return nullptr;
  auto made = range->of_gpu ? Registration::make(devices_, [&](std::size_t device) { return gpu_->add(device, first, range->bytes); })
                            : Registration::make(devices_, first, range->bytes);
  if (made) {
    entry.registration = std::move(*made);
    ++counters_.registrations;
  } else {
    say_refused(range->of_gpu, made.status());
  }
  return (entries_[range->token] = std::move(entry)).registration;
}

// Once: a job may have thousands of such ranges, and the reason names the size of each.
void Registrations::say_refused(bool of_gpu, const Status& why) {
  if (std::exchange(refused_[of_gpu], true)) return;
  log::write(log::Level::warning, of_gpu ? fmt::format("memory of a GPU cannot be registered for RDMA, and is staged: {}", why.text())
                                         : fmt::format("RDMA copies what it sends from and receives into memory that cannot be registered: {}", why.text()));
}

void Registrations::purge() {
  const std::uint64_t dropped = dropped_ranges();
  if (dropped == seen_dropped_) return;
  seen_dropped_ = dropped;
  std::erase_if(entries_, [](const auto& entry) { return !lives(entry.first); });
}

// The one that was unused for the longest time, and is not in use now.
void Registrations::make_room() {
  if (entries_.size() < kMost) return;
  auto oldest = entries_.end();
  for (auto at = entries_.begin(); at != entries_.end(); ++at)
    if (at->second.registration.use_count() <= 1 && (oldest == entries_.end() || at->second.used < oldest->second.used)) oldest = at;
  if (oldest != entries_.end()) entries_.erase(oldest);
}

}  // namespace tutti::transport::rdma
