#pragma once
// The transport itself: devices and their completions, and which connection they belong to.
#include <array>
#include <unordered_map>

#include "transport/rdma/connection.h"
#include "transport/rdma/joining.h"
#include "transport/rdma/rdma_transport.h"

namespace tutti::transport::rdma {

class VerbsTransport final : public RdmaTransport {
 public:
  // `verbs` must outlive it.
  static Result<std::unique_ptr<VerbsTransport>> make(const Verbs& verbs, Loop& loop, Listener& listener, const RdmaOptions& options);
  ~VerbsTransport() override;
  VerbsTransport(const VerbsTransport&) = delete;
  VerbsTransport& operator=(const VerbsTransport&) = delete;

  void connect(int peer, std::vector<std::unique_ptr<Stream>> sockets, bool dialler, OnReady on_ready) override;
  bool connected(int peer) const override;
  bool broken(int peer) const override;
  void resume(int peer, std::vector<std::unique_ptr<Stream>> sockets, bool dialler, OnResumed on_resumed) override;
  std::uint64_t progress(int peer) const override;
  std::uint64_t sent_again(int peer) const override;
  void disconnect(int peer) override;
  Status use_gpu(tutti::Device& gpu) override;
  std::string describe_devices() const override;

  std::string name() const override { return "rdma"; }
  std::size_t segment_bytes(std::uint64_t message_bytes) const override { return shared_.segment_bytes(message_bytes); }
  bool poll() override;
  void abandon(std::uint32_t communicator) override;
  bool drained() const override;
  bool prepare_sleep() override;
  void wake_done() override;
  std::size_t memory_bytes() const override;

  const GpuDirect* gpu() const { return gpu_.get(); }
  const RdmaCounters& counters() const override { return shared_.counters; }
  std::vector<PortError> port_errors() const override;
  std::string debts() const override;

 private:
  VerbsTransport(Loop& loop, Listener& listener, const RdmaOptions& options) : shared_(loop, listener, options) {}
  // A peer's queue pairs and the sockets by which they were agreed upon.
  struct Link {
    std::unique_ptr<RdmaConnection> connection;
    std::vector<std::unique_ptr<Stream>> sockets;
    std::unique_ptr<Event> moved;          // something has come while it joins
    bool closed = false;                   // the peer has closed a socket
    bool resuming = false;
    TimePoint broken_since{};
    bool was_over_socket = false;          // before it broke
    bool over = false;                     // lost, and said so
  };
  struct Slot {
    Link* link = nullptr;
    std::size_t queue = 0;
  };

  std::string used_devices() const;

  Task<void> join(int peer, std::vector<std::unique_ptr<Stream>> sockets, bool dialler, OnReady on_ready);
  Task<void> rejoin(std::shared_ptr<Link> link, std::vector<std::unique_ptr<Stream>> sockets, bool dialler, OnResumed on_resumed);
  Task<Status> meet(Link& link, int side, bool& broken);
  Task<Status> greet(Link& link, TimePoint deadline, bool& broken);
  Task<void> hear_greeting(Link& link, Result<std::uint64_t>& good);
  Task<Status> settle(Link& link);
  Task<bool> give_up_devices(Link& link, const Status& why);
  Task<Status> catch_up(Link& link, bool over_socket);
  void break_off(Link& link);
  Status prepare_pools();
  Offer current_offer();
  bool poll_devices();
  bool poll_sockets();
  void dispatch(const ibv_wc& completion);
  void watch_sockets(Link& link);
  bool tend(Link& link);
  void end(Link& link, const Status& why);
  void lose(Link& link, const Status& why);
  void forget(Link& link);
  void number(Link& link);

  Shared shared_;
  std::string unused_;                                      // ports, and why
  std::unique_ptr<GpuDirect> gpu_;
  std::vector<std::shared_ptr<void>> watches_;
  std::vector<Slot> slots_;                                 // by the id of a queue pair
  std::unordered_map<int, std::shared_ptr<Link>> links_;
  std::vector<std::shared_ptr<Link>> gone_;                 // disconnected inside poll()
  std::vector<ibv_wc> dispatched_;                          // inside poll()
  std::vector<Link*> tended_;
  int joining_ = 0;
  bool polling_ = false;
  mutable bool flush_ = false;                              // somebody waits for drained()
  TaskSet tasks_;                                           // dies first
};

}  // namespace tutti::transport::rdma
