#pragma once
// QueuePair: one reliable connection of two ports: its states, what is posted on it, and how far the peer's receives reach. It does not
// know what the bytes mean.
#include <cstdint>
#include <deque>
#include <memory>
#include <string>

#include "transport/rdma/cell.h"
#include "transport/rdma/device.h"
#include "transport/rdma/memory.h"
#include "transport/transport.h"

namespace tutti::transport::rdma {

struct QueueOptions {
  int timeout = 16, retry = 7, service_level = 0, traffic_class = 0;
};

// Where the other end is.
struct QueueAddress {
  std::uint32_t number = 0, first_packet = 0;
  Gid gid;
  std::uint16_t lid = 0;
};

struct RdmaCounters {
  std::uint64_t work_requests = 0, inlined = 0, doorbells = 0;     // doorbells: calls that posted something, sends or receives
  std::uint64_t completions = 0, arrivals = 0;                     // of what was sent; of what came
  std::uint64_t cells_out = 0, control_out = 0, writes_out = 0;    // cells with payload; without: grants, credit; writes of segments
  std::uint64_t credits_out = 0, grants_out = 0;                   // of control_out
  std::uint64_t bytes_out = 0, copied_out = 0, copied_in = 0;      // copied: payload, on its way to the device or from where it landed
  std::uint64_t registrations = 0;       // of users' memory
  std::uint64_t queue_pairs_lost = 0;
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

class QueuePair {
 public:
  static constexpr std::uint32_t kSends = 128, kReceives = 256;
  static constexpr std::uint32_t kControlSends = 32, kControlReceives = 32;     // that data leaves free
  static constexpr std::uint32_t kReceiveFlag = 1u << 31;                       // in work request ids, beside the id

  // `id` is in the upper half of its work requests' ids.
  static Result<std::unique_ptr<QueuePair>> make(Device& device, std::size_t device_index, std::uint32_t id, RdmaCounters& counters);
  ~QueuePair();
  QueuePair(const QueuePair&) = delete;
  QueuePair& operator=(const QueuePair&) = delete;

  // Ready to receive and to send; its receives are posted.
  Status connect(const QueueAddress& peer, const Gid& own_gid, int mtu, const QueueOptions& options);
  // Nothing is sent or received from when this returns; what was posted completes with errors.
  void stop();
  bool usable() const { return usable_; }

  std::uint32_t number() const { return pair_->qp_num; }
  std::uint32_t first_packet() const { return first_packet_; }
  std::uint32_t id() const { return id_; }
  Device& device() const { return device_; }
  std::size_t device_index() const { return device_index_; }
  // "mlx5_0:1 10.0.0.1 -> 10.0.0.2"
  std::string describe() const;

  // Whether so many more writes may be posted, as data or as control.
  bool has_room(std::uint32_t writes, bool control = false) const;
  std::uint32_t writes_under_way() const { return writes_; }
  bool has_write_of(std::uint32_t communicator) const;
  bool reads_memory_of(std::uint32_t communicator) const;      // users' own
  bool idle() const { return posted_.empty(); }
  std::uint32_t inline_bytes() const { return inline_bytes_; }
  // Writes to the peer's memory and tells it `immediate`. There is room. network: the device refused.
  Status write(const std::byte* data, std::uint32_t bytes, std::uint32_t local_key, std::uint64_t address, std::uint32_t remote_key, std::uint32_t immediate,
               bool signaled, const Posted& posted);
  std::uint32_t unsignaled() const { return unsignaled_; }
  // The oldest that a good completion of this sequence covers; empty when there is none left.
  bool take_completed(std::uint32_t sequence, Posted& out);
  // Anything that is still posted, once stopped.
  bool take_posted(Posted& out);

  // A receive was used: posts new ones, some at a time. Or it was flushed; once all were, nothing more can arrive.
  void used_receive();
  void flushed_receive() { ++receives_used_; }
  bool settled() const { return receives_used_ == receives_posted_; }
  std::uint32_t receives_posted() const { return receives_posted_; }
  std::uint32_t receives_told = 0;     // to the peer
  void peer_posted(std::uint32_t receives);

 private:
  QueuePair(Device& device, std::size_t index, std::uint32_t id, RdmaCounters& counters) : device_(device), device_index_(index), id_(id), counters_(counters) {}
  static constexpr std::uint32_t kRepost = 32;
  Status modify(ibv_qp_attr& attributes, int mask, const char* state);
  bool post_receives(std::uint32_t count);

  Device& device_;
  std::size_t device_index_;
  std::uint32_t id_;
  RdmaCounters& counters_;
  ibv_qp* pair_ = nullptr;
  bool usable_ = false, counted_ = false;
  std::uint32_t first_packet_ = 0, inline_bytes_ = 0;
  Gid own_gid_, peer_gid_;
  std::deque<Posted> posted_;
  std::uint32_t writes_ = 0;           // of posted_, those of granted messages
  std::uint32_t sequence_ = 0;         // of the next send; the oldest posted one is sequence_ - posted_.size()
  std::uint32_t unsignaled_ = 0;       // since the last that was signaled
  std::uint32_t sent_ = 0, peer_receives_ = 0;
  std::uint32_t receives_posted_ = 0, receives_used_ = 0;
};

// What a completion's status means and what to check.
std::string explain(ibv_wc_status status, const QueueOptions& options);

}  // namespace tutti::transport::rdma
