#pragma once
// Device: an opened port, with what all connections over it share: protection domain, completion queue, the channel that wakes. It
// knows no peers.
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "transport/rdma/fabric.h"
#include "transport/rdma/rdma_counters.h"
#include "transport/rdma/verbs.h"

namespace tutti::transport::rdma {

class Device {
 public:
  // All ports of all devices that can be opened, whatever their state.
  static std::vector<std::unique_ptr<Device>> open_all(const Verbs& verbs);
  ~Device();
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  // Before anything is made on it. out_of_resources, unsupported: which call, on what, and why.
  Status prepare(bool relaxed_ordering);

  const Port& port() const { return port_; }      // as it was when opened
  bool active() const;                            // now
  void read_errors(std::vector<PortError>& into) const;
  int most_retries() const { return most_retries_; }        // that end: it takes more for endless ones
  const Verbs& verbs() const { return verbs_; }
  ibv_pd* domain() const { return domain_; }
  ibv_cq* completions() const { return completions_; }
  // Room in the completion queue for so many more, or fewer. out_of_resources.
  Status make_room(int completions);

  // Local and remote writing. Says what is wrong with RLIMIT_MEMLOCK before it tries.
  Result<ibv_mr*> add(std::byte* data, std::size_t bytes);
  // Of memory of another device, behind a dma-buf's descriptor. unsupported: the kernel or libibverbs cannot; out_of_resources.
  Result<ibv_mr*> add_dmabuf(int descriptor, std::uint64_t offset, std::byte* data, std::size_t bytes);
  void drop(ibv_mr* registration);

  // Completions that are there, at most as many as fit.
  int poll(std::span<ibv_wc> into);
  int descriptor() const { return channel_->fd; }
  // The descriptor can be read when the next completion comes.
  bool arm();              // the next completion makes an event; false: the device refuses
  void take_events();

 private:
  Device(const Verbs& verbs, ibv_context* context) : verbs_(verbs), context_(context) {}
  bool read(std::uint8_t port);
  void read_gids(std::uint8_t port, int table_size);
  Status failed(const char* call, int error) const;

  const Verbs& verbs_;
  ibv_context* context_;
  ibv_pd* domain_ = nullptr;
  ibv_comp_channel* channel_ = nullptr;
  ibv_cq* completions_ = nullptr;
  int room_ = 0, used_ = 0;             // of the completion queue
  unsigned access_ = 0;
  int most_retries_ = 7;
  bool armed_ = false;
  Port port_;
};

// Bytes that this process may lock; empty where nothing stands against `bytes` more.
std::string memory_lock_complaint(std::size_t bytes);

}  // namespace tutti::transport::rdma
