#pragma once
// RdmaTransport: messages by RDMA writes over InfiniBand or RoCE. Small ones go into the peer's inbox, larger ones straight to where the
// receiver grants them. Sockets come in connected and authenticated: over them two ranks find out whether their devices reach each other
// and tell each other where to write; afterwards they only tell when the peer's process ends.
//
// Needs libibverbs at run time and its headers at build time; without, make() says so.
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/device.h"
#include "core/net.h"
#include "core/task.h"
#include "transport/rdma/rdma_counters.h"
#include "transport/rdma/rdma_options.h"
#include "transport/transport.h"

namespace tutti::transport {

class RdmaTransport : public Transport {
 public:
  // Loop and listener must outlive it. Leases must be released before it goes. unsupported: there is no device here that can be used;
  // the text says of each why.
  static Result<std::unique_ptr<RdmaTransport>> make(Loop& loop, Listener& listener, const rdma::RdmaOptions& options);

  // Both sides call it, exactly one with `dialler`; the callback comes from Loop::run or poll(), on both sides with the same outcome. Where
  // the two cannot reach each other by RDMA: unsupported, why, and the sockets, from which nothing is left to be read. Where the sockets
  // themselves failed: network, and none.
  using OnReady = std::function<void(Result<Connection*>, std::vector<std::unique_ptr<Stream>>)>;
  virtual void connect(int peer, std::vector<std::unique_ptr<Stream>> sockets, bool dialler, OnReady on_ready) = 0;
  virtual bool connected(int peer) const = 0;
  // Connected, but all its queue pairs have failed (Listener::on_broken).
  virtual bool broken(int peer) const = 0;
  // New queue pairs for a connection that is not lost, agreed upon over new sockets, in place of those that it has; both sides call it. It goes
  // on where it was; rails that do not work any more are left out. Where none does, it stays broken, and the status says why; once it has been so
  // for RdmaOptions::socket_after, it goes on over the first of those sockets.
  using OnResumed = std::function<void(const Status&)>;
  virtual void resume(int peer, std::vector<std::unique_ptr<Stream>> sockets, bool dialler, OnResumed on_resumed) = 0;
  // What has arrived or was acknowledged so far, in some unit.
  virtual std::uint64_t progress(int peer) const = 0;
  // Cells and writes that were sent to it again, after breaks.
  virtual std::uint64_t sent_again(int peer) const = 0;
  // Says good-bye without waiting. Nothing more is said of this peer; its connection is gone when the call returns, or when poll() does.
  virtual void disconnect(int peer) = 0;
  virtual const rdma::RdmaCounters& counters() const = 0;
  // Of its ports, those that their kernel drivers count. Reads a few files of /sys.
  virtual std::vector<rdma::PortError> port_errors() const = 0;
  // GPUDirect: tries out whether its devices come to that GPU's memory, which takes milliseconds, and logs what came out, one line for each
  // device. ok: all of them do, and messages longer than kEager may be sent from and received into it. unsupported: the lines of those that do
  // not. Once; must outlive it.
  virtual Status use_gpu(Device& gpu) = 0;
  static constexpr std::size_t kEager = 8 << 10;      // Connection::eager_bytes()
  // "mlx5_0:1 (InfiniBand, active, 400 Gb/s, NUMA node 0, fe80::1), ...; not used: mlx5_1:1 (...) is not active but down: ..."
  virtual std::string describe_devices() const = 0;
};

namespace rdma {

// The other side of connect() at a rank that has no RdmaTransport: tells the peer why, and gives the sockets to the callback.
Task<void> decline(Loop& loop, std::vector<std::unique_ptr<Stream>> sockets, std::string why, RdmaTransport::OnReady on_ready);

}  // namespace rdma
}  // namespace tutti::transport
