#pragma once
// QueuePair: one reliable connection of two ports: its states, what is posted on it, and how far the peer's receives reach. It does not
// know what the bytes mean.
#include "transport/rdma/device.h"
#include "transport/rdma/queue.h"

namespace tutti::transport::rdma {

// Where the other end is.
struct QueueAddress {
  std::uint32_t number = 0, first_packet = 0;
  Gid gid;
  std::uint16_t lid = 0;
};

class QueuePair final : public Queue {
 public:
  static Result<std::unique_ptr<QueuePair>> make(Device& device, std::size_t device_index, std::uint32_t id, RdmaCounters& counters);
  ~QueuePair() override;

  // Ready to receive and to send; its receives are posted.
  Status connect(const QueueAddress& peer, const Gid& own_gid, int mtu, const QueueOptions& options);
  std::uint32_t number() const { return pair_->qp_num; }
  std::uint32_t first_packet() const { return first_packet_; }
  Device& device() const { return device_; }

  void stop() override;
  std::size_t device_index() const override { return device_index_; }
  std::string describe() const override;      // "mlx5_0:1 10.0.0.1 -> 10.0.0.2"
  std::string why(ibv_wc_status status, const QueueOptions& options) const override { return explain(status, options); }
  bool has_room(std::uint32_t writes, bool control = false) const override;
  Status write(const WriteRequest& request, bool signaled, const Posted& posted) override;
  void used_receive() override;      // posts new ones, some at a time

  static std::string explain(ibv_wc_status status, const QueueOptions& options);

 private:
  QueuePair(Device& device, std::size_t index, std::uint32_t id, RdmaCounters& counters) : Queue(id, counters), device_(device), device_index_(index) {}
  static constexpr std::uint32_t kRepost = 32;
  Status modify(ibv_qp_attr& attributes, int mask, const char* state);
  bool post_receives(std::uint32_t count);

  Device& device_;
  std::size_t device_index_;
  ibv_qp* pair_ = nullptr;
  bool counted_ = false;
  std::uint32_t first_packet_ = 0, inline_bytes_ = 0;
  Gid own_gid_, peer_gid_;
};

}  // namespace tutti::transport::rdma
