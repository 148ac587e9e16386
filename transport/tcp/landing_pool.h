#pragma once
// Memory for segments that arrive before anybody has a place for them. How many come is bounded by what their senders
// were granted (grants.h) or have credit for. Size classes are powers of two; returned buffers are kept for the next
// taker, the most recently used first.
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "transport/tcp/frame.h"

namespace tutti::transport::tcp {

class Incoming;

struct Landing {
  std::byte* data = nullptr;
  std::size_t capacity = 0;
  Incoming* owner = nullptr;          // told at release; null: the connection is gone
  Frame frame;                        // that lies here
  bool eager = false;
  bool taken = false;
};

class LandingPool final : public LeaseHolder {
 public:
  // `limit`: bytes that are kept for granted segments, used or not.
  explicit LandingPool(std::size_t limit) : limit_(limit) {}
  ~LandingPool();
  LandingPool(const LandingPool&) = delete;
  LandingPool& operator=(const LandingPool&) = delete;

  Landing* take(std::size_t bytes, bool eager);
  void give_back(Landing* landing);
  void forget(const Incoming* owner);              // the connection ends; leases that are out stay readable
  Lease lease(Landing* landing) { return {this, reinterpret_cast<std::uintptr_t>(landing)}; }
  void release(std::uint64_t token) override;

  std::size_t memory_bytes() const { return memory_; }
  std::size_t granted_bytes() const { return granted_; }
  std::size_t eager_bytes() const { return eager_; }

 private:
  static constexpr unsigned kSmallest = 8;         // 256 bytes
  static constexpr unsigned kClasses = 15;         // .. 4 MB, the longest payload
  static unsigned class_of(std::size_t bytes);
  // Returns unused buffers to the system until `wanted` more bytes fit under `most`, or none is unused.
  void trim(std::size_t most, std::size_t wanted);

  std::size_t limit_;
  std::size_t memory_ = 0, granted_ = 0, eager_ = 0;
  std::array<std::vector<Landing*>, kClasses> free_;
  std::vector<std::unique_ptr<Landing>> all_;
  std::vector<Landing*> empty_;                    // records without memory
};

}  // namespace tutti::transport::tcp
