#pragma once
// Messages over TCP: frames with checksums on one or several sockets a pair, grants and credits, acknowledgements,
// sending again. Sockets come in connected and authenticated; who is whom, and reconnecting, are the caller's business.
//
// poll() reads the sockets directly, without asking the kernel which are ready; with many idle ones it asks
// Loop::run(0).
#include <cstdint>
#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

#include "transport/tcp/connection.h"
#include "transport/tcp/shared.h"

namespace tutti::transport {

using tcp::TcpCounters;
using tcp::TcpOptions;

class TcpTransport final : public Transport {
 public:
  // Loop and listener must outlive it. Leases must be released before it goes.
  TcpTransport(Loop& loop, Listener& listener, const TcpOptions& options = {});
  ~TcpTransport() override;
  TcpTransport(const TcpTransport&) = delete;
  TcpTransport& operator=(const TcpTransport&) = delete;

  // Lives until disconnect(peer), also when lost. `peer` must not be connected.
  Connection* connect(int peer, std::vector<std::unique_ptr<Stream>> sockets);
  // One more socket for a connection that is not lost. False: it is, or never was.
  bool add_socket(int peer, std::unique_ptr<Stream> socket);
  // For a connection that is not lost: new sockets in place of those that it has, if any; the peer gives them up, too.
  // Goes on from the last acknowledged segments. False: it is lost, or never was.
  bool resume(int peer, std::vector<std::unique_ptr<Stream>> sockets);
  bool connected(int peer) const;
  bool broken(int peer) const;                        // connected, but has no socket
  std::size_t socket_count(int peer) const;
  std::optional<tcp::Unacknowledged> oldest_unacknowledged(int peer) const;
  // Frames that have arrived or were acknowledged so far.
  std::uint64_t progress(int peer) const;
  // Asks for an acknowledgement on each socket.
  void ping(int peer);
  // Says good-bye without waiting. Nothing more is said of this peer, on_lost included; its connection is gone when the
  // call returns, or when poll() does if called from within. Unacknowledged segments may be lost.
  void disconnect(int peer);

  std::string name() const override { return "tcp"; }
  std::size_t segment_bytes(std::uint64_t message_bytes) const override;
  // Inside, Loop::run(0) may be called.
  bool poll() override;
  void abandon(std::uint32_t communicator) override;
  bool drained() const override;
  // Also sends the acknowledgements that are owed.
  bool prepare_sleep() override;
  void wake_done() override;
  std::size_t memory_bytes() const override;
  std::string debts() const override;

  // From the peer to here, since the connection was made; zeros: there is none.
  tcp::Service service(int peer) const;
  // From here to the peer, since then. Asks the kernel about each socket.
  tcp::Repairs repairs(int peer) const;
  const TcpCounters& counters() const { return shared_.counters; }
  const TcpOptions& options() const { return shared_.options; }
  std::size_t landing_bytes() const { return shared_.landings.granted_bytes() + shared_.landings.eager_bytes(); }

 private:
  using Socket = tcp::TcpSocket;
  static constexpr std::size_t kAskAbove = 8;         // idle sockets from which on the loop is asked
  static constexpr std::uint64_t kActiveRounds = 2000;
  static constexpr std::uint64_t kArmedRounds = 4000; // polls with traffic after which a socket is no longer watched
  static constexpr std::size_t kReadBytes = 256 << 10; // of one socket in one poll

  bool tend_busy();
  bool read_active();
  bool read_idle();
  bool read(Socket& socket);
  void watch(Socket& socket, bool reading);
  void activate(Socket& socket);
  void drop_from_lists(Socket& socket);
  void lose(tcp::TcpConnection& connection);
  tcp::TcpConnection* find(int peer) const;           // not lost
  void bury_dead();

  tcp::Shared shared_;
  Loop& loop_;
  std::unordered_map<int, std::unique_ptr<tcp::TcpConnection>> connections_;
  std::vector<Socket*> active_, idle_;                // active: the most recently active first, roughly
  std::vector<Socket*> ready_;                        // the loop says so
  std::vector<tcp::TcpConnection*> tended_;           // scratch of tend_busy
  std::vector<std::unique_ptr<tcp::TcpConnection>> gone_;    // disconnected inside poll()
  std::vector<std::unique_ptr<Socket>> buried_;
  std::vector<Socket*> watched_writes_;
  std::uint64_t round_ = 0;
  std::size_t next_idle_ = 0;
  bool polling_ = false;
};

}  // namespace tutti::transport
