#include "transport/ranges.h"

#include <fmt/format.h>

#include <atomic>
#include <map>
#include <mutex>
#include <shared_mutex>
#include <unordered_set>

#include "core/fork.h"

namespace tutti::transport {
namespace {

struct Table {
  std::shared_mutex mutex;
  std::map<const std::byte*, Range> ranges;
  std::unordered_set<std::uint64_t> tokens;
  std::uint64_t last_token = 0;
  std::atomic<std::size_t> count{0};
  std::atomic<std::uint64_t> dropped{0};

  std::map<const std::byte*, Range>::iterator erase(std::map<const std::byte*, Range>::iterator at) {
    tokens.erase(at->second.token);
    at = ranges.erase(at);
    count.store(ranges.size(), std::memory_order_release);
    dropped.fetch_add(1, std::memory_order_release);
    return at;
  }
};

Table& table() {
  static PerProcess<Table> all;
  return *all;
}

// Under the mutex: the first that these bytes, or such as lie behind them, touch.
std::map<const std::byte*, Range>::iterator first_from(const std::byte* data) {
  auto& ranges = table().ranges;
  auto first = ranges.lower_bound(data);
  if (first != ranges.begin() && std::prev(first)->second.data + std::prev(first)->second.bytes > data) --first;
  return first;
}

// Under the mutex.
Status add(const Range& range, bool fresh) {
  const std::byte* const data = range.data;
  const std::size_t bytes = range.bytes;
  auto& ranges = table().ranges;
  for (auto at = first_from(data); at != ranges.end() && at->first < data + bytes;) {
    if (!fresh) return Status(Code::invalid_argument, fmt::format("register memory: a part of the {} bytes at {} is registered or allocated by tutti already", bytes, fmt::ptr(data)));
    at = table().erase(at);
  }
  const std::uint64_t token = ++table().last_token;
  ranges[data] = range;
  ranges[data].token = token;
  table().tokens.insert(token);
  table().count.store(ranges.size(), std::memory_order_release);
  return {};
}

}  // namespace

Status add_range(const std::byte* data, std::size_t bytes, bool fresh, bool of_gpu) {
  if (!data || bytes == 0) return Status(Code::invalid_argument, "register memory: no bytes");
  const std::unique_lock held(table().mutex);
  return add({0, data, bytes, of_gpu}, fresh);
}

bool note_gpu_range(const std::byte* data, std::size_t bytes, const void* owner, std::uint64_t allocation) {
  const std::unique_lock held(table().mutex);
  const auto known = table().ranges.find(data);
  if (known != table().ranges.end() && known->second.bytes == bytes && known->second.owner == owner && known->second.allocation == allocation) return false;
  (void)add({0, data, bytes, true, owner, allocation}, true);
  return true;
}

void forget_gpu_ranges(const std::byte* data, std::size_t bytes) {
  if (bytes == 0 || table().count.load(std::memory_order_acquire) == 0) return;
  const std::unique_lock held(table().mutex);
  for (auto at = first_from(data); at != table().ranges.end() && at->first < data + bytes;) at = at->second.owner ? table().erase(at) : std::next(at);
}

std::vector<Range> ranges_of_gpu(const void* owner) {
  std::vector<Range> out;
  const std::shared_lock held(table().mutex);
  for (const auto& [at, range] : table().ranges)
    if (range.owner == owner) out.push_back(range);
  return out;
}

bool drop_range(const std::byte* data) {
  const std::unique_lock held(table().mutex);
  const auto found = table().ranges.find(data);
  if (found == table().ranges.end()) return false;
  table().erase(found);
  return true;
}

std::optional<Range> range_of(const std::byte* data, std::size_t bytes) {
  if (table().count.load(std::memory_order_acquire) == 0) return std::nullopt;
  const std::shared_lock held(table().mutex);
  auto found = table().ranges.upper_bound(data);
  if (found == table().ranges.begin()) return std::nullopt;
  const Range& range = (--found)->second;
  const auto offset = std::size_t(data - range.data);
  if (offset > range.bytes || bytes > range.bytes - offset) return std::nullopt;
  return range;
}

bool of_gpu(const std::byte* data, std::size_t bytes) {
  const auto range = range_of(data, bytes);
  return range && range->of_gpu;
}

bool lives(std::uint64_t token) {
  const std::shared_lock held(table().mutex);
  return table().tokens.contains(token);
}

std::uint64_t dropped_ranges() { return table().dropped.load(std::memory_order_acquire); }

}  // namespace tutti::transport
