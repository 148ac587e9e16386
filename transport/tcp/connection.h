#pragma once
// One live pair of ranks over one or several sockets: joins the sending and the receiving half, buries sockets that
// fail, and says once when the last is gone. Connecting and authenticating happened before.
#include <memory>
#include <string>
#include <vector>

#include "transport/tcp/incoming.h"
#include "transport/tcp/outgoing.h"
#include "transport/tcp/shared.h"
#include "transport/tcp/socket.h"

namespace tutti::transport {
class TcpTransport;
}

namespace tutti::transport::tcp {

class TcpConnection final : public Connection {
 public:
  TcpConnection(Shared& shared, int peer);

  Sent send(const SegmentHeader& header, const std::byte* data, std::uint64_t token) override;
  void expect(const SegmentHeader& message, Readiness readiness, std::byte* place) override;
  std::size_t eager_bytes() const override { return shared_.options.eager_bytes; }
  std::string describe() const override;

  int peer() const { return peer_; }
  Outgoing& out() { return out_; }
  Incoming& in() { return in_; }
  const std::vector<std::unique_ptr<TcpSocket>>& sockets() const { return sockets_; }
  TcpSocket* add(std::unique_ptr<Stream> stream);
  // Nothing is to be said or read any more: lost, or disconnected here.
  bool over() const { return over_; }
  // Puts it on the list of those that poll() looks after.
  void mark_busy();

  // Acks, answers and queued frames, as far as the sockets take them. No callback of the listener but landing().
  bool flush();
  // Whether the next poll has something to do that no socket will announce.
  bool restless() const;
  bool wants_poll() const;
  // Takes failed sockets out, into `buried` (they may be on the transport's lists still). True: that was the last one,
  // which stays where the connection cannot go on.
  bool bury(std::vector<std::unique_ptr<TcpSocket>>& buried);
  // Without a socket, waiting for one.
  bool broken() const { return !over_ && sockets_.empty(); }
  bool can_resume() const { return shared_.options.resumable && !peer_closed_ && !beyond_repair_; }
  Status why_broken() const;
  Repairs repairs() const;
  // Ends it. Returns what to tell the listener.
  Status end();
  // Ends it from this side: says so to the peer as far as that goes without waiting.
  void close();
  // The whole connection is beyond repair.
  void fail(const std::string& why);
  void peer_closed() { peer_closed_ = true; }

 private:
  Shared& shared_;
  int peer_;
  std::string description_;
  std::vector<std::unique_ptr<TcpSocket>> sockets_;
  Outgoing out_;
  Incoming in_;
  std::string last_failure_;
  std::uint64_t buried_retransmitted_ = 0;    // on sockets that are gone
  bool over_ = false;
  bool busy_ = false;
  bool peer_closed_ = false;
  bool beyond_repair_ = false;

  friend class tutti::transport::TcpTransport;
};

}  // namespace tutti::transport::tcp
