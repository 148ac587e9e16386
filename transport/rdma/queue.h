#pragma once
// Queue: one way by which writes go to a peer, in order, each with 32 bits of its own: what is posted on it, and how far it is known to
// have arrived. What carries the bytes is another's business: a device (queue_pair.h), or a socket where no device works (socket_queue.h).
#include <infiniband/verbs.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "transport/rdma/cell.h"
#include "transport/rdma/memory.h"
#include "transport/rdma/rdma_counters.h"
#include "transport/transport.h"

namespace tutti::transport::rdma {

struct QueueOptions {
  int timeout = 16, retry = 7, service_level = 0, traffic_class = 0;
};

// What was posted and not completed: a cell, or a write of a granted message.
struct Posted {
  bool cell = true;
  bool tell = false;                   // Listener::on_sent(token)
  std::uint32_t bytes = 0;
  std::uint64_t token = 0, offset = 0, message_bytes = 0;
  MessageKey key;
  GrantBody where;
  const std::byte* source = nullptr;   // and where that is registered: in `staging`, or in `memory`
  Part staging;                        // to be given back
  bool staging_ends = false;           // with this one
  std::shared_ptr<const Registration> memory;
};

// Where a write comes from and goes to.
struct WriteRequest {
  const std::byte* data = nullptr;
  std::uint32_t bytes = 0;
  std::uint32_t local_key = 0;
  std::uint64_t address = 0;
  std::uint32_t remote_key = 0;
  std::uint32_t immediate = 0;
};

class Queue {
 public:
  static constexpr std::uint32_t kSends = 128, kReceives = 256;
  static constexpr std::uint32_t kControlSends = 32, kControlReceives = 32;     // that data leaves free
  static constexpr std::uint32_t kReceiveFlag = 1u << 31;                       // in work request ids, beside the id

  virtual ~Queue() = default;
  Queue(const Queue&) = delete;
  Queue& operator=(const Queue&) = delete;

  // Nothing is sent or received from when this returns; what was posted completes with errors, or never.
  virtual void stop() = 0;
  bool usable() const { return usable_; }
  std::uint32_t id() const { return id_; }      // in the upper half of its work requests' ids
  virtual std::size_t device_index() const { return 0; }
  virtual std::string describe() const = 0;
  // What such a completion means, and what to check.
  virtual std::string why(ibv_wc_status status, const QueueOptions& options) const = 0;

  // Whether so many more writes may be posted, as data or as control.
  virtual bool has_room(std::uint32_t writes, bool control = false) const;
  // There is room. network: refused.
  virtual Status write(const WriteRequest& request, bool signaled, const Posted& posted) = 0;

  std::uint32_t writes_under_way() const { return writes_; }
  bool has_write_of(std::uint32_t communicator) const;
  bool reads_memory_of(std::uint32_t communicator) const;      // users' own
  bool idle() const { return posted_count_ == 0; }
  std::uint32_t unsignaled() const { return unsignaled_; }
  // The oldest that a good completion of this sequence covers; empty when there is none left.
  bool take_completed(std::uint32_t sequence, Posted& out);
  // Anything that is still posted, once stopped.
  bool take_posted(Posted& out);

  // A receive was used. Or it was flushed; once all were, nothing more can arrive.
  virtual void used_receive() {}
  void flushed_receive() { ++receives_used_; }
  bool settled() const { return receives_used_ == receives_posted_; }
  std::uint32_t receives_posted() const { return receives_posted_; }
  std::uint32_t receives_told = 0;     // to the peer
  void peer_posted(std::uint32_t receives);

 protected:
  Queue(std::uint32_t id, RdmaCounters& counters) : id_(id), counters_(counters) {}
  void keep(const Posted& posted, std::uint32_t bytes, bool signaled);
  Posted& posted(std::uint32_t k) { return posted_[(sequence_ - posted_count_ + k) % kSends]; }      // the oldest: 0
  const Posted& posted(std::uint32_t k) const { return posted_[(sequence_ - posted_count_ + k) % kSends]; }
  template <class Which>
  bool any_posted(const Which& which) const {
    for (std::uint32_t k = 0; k < posted_count_; ++k)
      if (which(posted(k))) return true;
    return false;
  }

  const std::uint32_t id_;
  RdmaCounters& counters_;
  bool usable_ = false;
  std::vector<Posted> posted_ = std::vector<Posted>(kSends);      // by sequence, in turn
  std::uint32_t posted_count_ = 0;          // the last so many of those
  std::uint32_t writes_ = 0;           // of posted_, those of granted messages
  std::uint32_t sequence_ = 0;         // of the next send; the oldest posted one is sequence_ - posted_count_
  std::uint32_t unsignaled_ = 0;       // since the last that was signaled
  std::uint32_t sent_ = 0, peer_receives_ = 0;
  std::uint32_t receives_posted_ = 0, receives_used_ = 0;
};

}  // namespace tutti::transport::rdma
