#pragma once
// SocketQueue: the writes of a pair that no device carries any more, over a socket: frames that the other side puts where a device would
// have written them. A write is completed once the peer says that it has it. So all that holds of a queue pair holds here: credits, grants,
// what is asked and sent again after a break. Memory of a GPU, which no socket reaches, is copied on the way.
#include <deque>
#include <functional>
#include <memory>
#include <vector>

#include "core/net.h"
#include "transport/rdma/gpu_direct.h"
#include "transport/rdma/queue.h"

namespace tutti::transport::rdma {

class SocketQueue final : public Queue {
 public:
  // Where the bytes of a write with these 32 bits belong; null: nowhere, and the peer is not to be believed.
  using Place = std::function<std::byte*(std::uint32_t immediate, std::uint32_t bytes)>;
  // As a device would tell it. May stop this queue.
  using OnCompletion = std::function<void(const ibv_wc&)>;
  // `gpu`: whose memory may be meant, or null; it may come later, and outlives this.
  SocketQueue(std::unique_ptr<Stream> stream, std::uint32_t id, RdmaCounters& counters, Place place, GpuDirect* const& gpu);

  // Moves what can be moved without blocking. Returns whether anything was.
  bool poll(const OnCompletion& on_completion);
  // Sends what can be sent. While the socket takes no more, the loop is woken when it does.
  void flush();

  void stop() override;
  std::string describe() const override { return description_; }
  std::string why(ibv_wc_status, const QueueOptions&) const override { return why_; }
  Status write(const WriteRequest& request, bool signaled, const Posted& posted) override;

 private:
  static constexpr std::size_t kReadBytes = 512 << 10;      // in one poll
  struct Frame {
    std::uint32_t is_write = 0;       // otherwise it says how many were taken, and no more
    std::uint32_t immediate = 0, bytes = 0, taken = 0;
  };
  struct Out {
    Frame frame;
    const std::byte* data;
    std::size_t sent = 0;
    std::vector<std::byte> copy = {};      // of memory of the GPU; `data` is in it
  };
  bool send();
  bool receive(const OnCompletion& on_completion);
  bool begin_payload();
  bool arrived(const OnCompletion& on_completion);
  void peer_took(std::uint32_t taken, const OnCompletion& on_completion);
  bool fail(std::string why);

  std::unique_ptr<Stream> stream_;
  const std::string description_;
  Place place_;
  GpuDirect* const& gpu_;
  std::string why_;
  bool told_ = false;                  // of the failure
  std::deque<Out> out_;
  Frame in_;
  std::size_t in_head_ = 0;            // bytes of its header that are there
  std::byte* into_ = nullptr;
  std::byte* gpu_place_ = nullptr;     // where the payload goes from landing_, then
  std::vector<std::byte> landing_;
  std::uint32_t left_ = 0;             // of its payload
  std::uint32_t taken_ = 0, taken_told_ = 0, peer_taken_ = 0;     // writes, since the beginning
};

}  // namespace tutti::transport::rdma
