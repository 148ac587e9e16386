#include "transport/ranges.h"

#include <fmt/format.h>

#include <atomic>
#include <map>
#include <mutex>
#include <shared_mutex>
#include <unordered_set>

namespace tutti::transport {
namespace {

struct Table {
  std::shared_mutex mutex;
  std::map<const std::byte*, Range> ranges;
  std::unordered_set<std::uint64_t> tokens;
  std::uint64_t last_token = 0;
  std::atomic<std::size_t> count{0};
  std::atomic<std::uint64_t> dropped{0};
};

Table& table() {
  static Table* const all = new Table;     // never destroyed: users may drop ranges at the very end
  return *all;
}

}  // namespace

Status add_range(const std::byte* data, std::size_t bytes) {
  if (!data || bytes == 0) return Status(Code::invalid_argument, "register memory: no bytes");
  const std::unique_lock held(table().mutex);
  auto& ranges = table().ranges;
  const auto next = ranges.lower_bound(data);
  const bool before = next != ranges.begin() && std::prev(next)->second.data + std::prev(next)->second.bytes > data;
  if (before || (next != ranges.end() && next->first < data + bytes))
    return Status(Code::invalid_argument, fmt::format("register memory: a part of the {} bytes at {} is registered or allocated by tutti already", bytes, fmt::ptr(data)));
  const std::uint64_t token = ++table().last_token;
  ranges[data] = {token, data, bytes};
  table().tokens.insert(token);
  table().count.store(ranges.size(), std::memory_order_release);
  return {};
}

bool drop_range(const std::byte* data) {
  const std::unique_lock held(table().mutex);
  const auto found = table().ranges.find(data);
  if (found == table().ranges.end()) return false;
  table().tokens.erase(found->second.token);
  table().ranges.erase(found);
  table().count.store(table().ranges.size(), std::memory_order_release);
  table().dropped.fetch_add(1, std::memory_order_release);
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

bool lives(std::uint64_t token) {
  const std::shared_lock held(table().mutex);
  return table().tokens.contains(token);
}

std::uint64_t dropped_ranges() { return table().dropped.load(std::memory_order_acquire); }

}  // namespace tutti::transport
