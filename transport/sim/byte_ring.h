#pragma once
// Bytes that were written and not yet read, first in, first out. Grows as needed and never shrinks.
#include <algorithm>
#include <cstddef>
#include <cstring>
#include <vector>

namespace tutti::sim {

class ByteRing {
 public:
  std::size_t size() const { return size_; }

  void push(const std::byte* from, std::size_t bytes) {
    if (size_ + bytes > room_.size()) grow(size_ + bytes);
    const std::size_t end = (head_ + size_) & (room_.size() - 1);
    const std::size_t first = std::min(bytes, room_.size() - end);
    if (first > 0) std::memcpy(room_.data() + end, from, first);
    if (bytes > first) std::memcpy(room_.data(), from + first, bytes - first);
    size_ += bytes;
  }
  // At most size(). A null pointer only drops.
  void pop(std::byte* into, std::size_t bytes) {
    if (bytes == 0) return;
    const std::size_t first = std::min(bytes, room_.size() - head_);
    if (into) {
      std::memcpy(into, room_.data() + head_, first);
      std::memcpy(into + first, room_.data(), bytes - first);
    }
    head_ = (head_ + bytes) & (room_.size() - 1);
    size_ -= bytes;
  }

 private:
  void grow(std::size_t wanted) {
    std::size_t capacity = std::max<std::size_t>(room_.size(), 256);
    while (capacity < wanted) capacity *= 2;
    std::vector<std::byte> bigger(capacity);
    const std::size_t kept = size_;
    pop(bigger.data(), kept);
    room_.swap(bigger);
    head_ = 0;
    size_ = kept;
  }

  std::vector<std::byte> room_;      // empty, or a power of two
  std::size_t head_ = 0;
  std::size_t size_ = 0;
};

}  // namespace tutti::sim
