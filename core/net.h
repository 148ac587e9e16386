#pragma once
// The seam to the world: time, waiting and byte streams. The real one is core/posix_net (epoll, sockets); transport/sim
// has one on a virtual clock, in which the same bootstrap, framing, credits and reconnects run.
//
// Threads: a Loop and everything made from it belong to one thread at a time, except Loop::wake().
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <sys/uio.h>
#include <tutti/status.h>
#include <vector>

namespace tutti {

using Nanoseconds = std::chrono::nanoseconds;
using TimePoint = std::chrono::time_point<std::chrono::steady_clock, Nanoseconds>;

// What a non-blocking read or write came to.
struct IoResult {
  std::size_t bytes = 0;     // moved; 0 with ok: would block
  bool closed = false;       // read: the peer has closed in good order
  Status status;             // not ok: the stream is dead
};

// A connected, non-blocking byte stream (TCP, Unix socket, or simulated). Closes when destroyed.
class Stream {
 public:
  virtual ~Stream() = default;
  virtual IoResult read(std::span<std::byte> into) = 0;
  // As read(), and what comes behind `into` goes on into `behind`: in one call where the system can do that.
  virtual IoResult read_past(std::span<std::byte> into, std::span<std::byte> behind) {
    IoResult first = read(into);
    if (first.bytes == into.size()) first.bytes += read(behind).bytes;      // what ails it the next read says again
    return first;
  }
  virtual IoResult write(std::span<const iovec> from) = 0;
  // Calls back from Loop::run when it can be read or written (also when closed or failed), level-triggered, until
  // changed. An empty function: not interested. Data-path users poll instead and set these only to sleep.
  virtual void when_readable(std::function<void()> callback) = 0;
  virtual void when_writable(std::function<void()> callback) = 0;
  // Unix-domain streams only: passes descriptors beside one byte of data. Others: unsupported.
  virtual Status send_descriptors(std::span<const int> descriptors) = 0;
  // Empty vector: not there yet. The caller owns what it gets.
  virtual Result<std::vector<int>> receive_descriptors() = 0;
  // Written, but not yet taken by the other end's kernel: lost if this end goes away now.
  virtual std::size_t unsent_bytes() const { return 0; }
  // Segments that the kernel has sent again on this connection; 0 where it does not tell.
  virtual std::uint64_t retransmitted() const { return 0; }
  virtual std::string local_address() const = 0;     // "10.0.0.1:4000", "@name" for abstract Unix sockets
  virtual std::string remote_address() const = 0;
};

class Acceptor {
 public:
  virtual ~Acceptor() = default;
  virtual std::string address() const = 0;           // with the port that was given
  virtual int port() const = 0;                      // 0 for Unix sockets
  // Each accepted stream goes to the callback given to listen().
};

// An address as text: "10.0.0.1:4000", "[fe80::1%eth0]:4000", "@abstract-name".
class Network {
 public:
  using OnAccept = std::function<void(std::unique_ptr<Stream>)>;
  using OnConnect = std::function<void(Result<std::unique_ptr<Stream>>)>;
  virtual ~Network() = default;
  // Port 0: any free one. Errors name the address and who holds the port where that can be found out.
  virtual Result<std::unique_ptr<Acceptor>> listen(const std::string& address, OnAccept on_accept) = 0;
  // Starts to connect; the callback comes from Loop::run, exactly once, unless the returned handle is dropped before.
  virtual std::shared_ptr<void> connect(const std::string& address, OnConnect on_connect) = 0;
  // Numeric addresses (without port) of this host that others could use, best
  // first; loopback last and only if `loopback`.
  virtual std::vector<std::string> local_addresses(bool loopback) = 0;
  // Numeric addresses for a name ("host:port" -> "10.0.0.1:port", ...). May block in the real one (getaddrinfo).
  virtual Result<std::vector<std::string>> resolve(const std::string& host_and_port) = 0;
};

class Loop {
 public:
  virtual ~Loop() = default;
  virtual TimePoint now() = 0;
  virtual Network& network() = 0;
  // Dispatches what is ready; waits for it at most `limit` (0: not at all; negative:
  // for ever). Returns whether anything ran.
  virtual bool run(Nanoseconds limit) = 0;
  // Blocks until run() would find something to dispatch, or `limit` is over; dispatches nothing. The one function that
  // may run beside the others: the owner lets go of the loop's lock meanwhile. Simulated loops return at once.
  virtual void wait(Nanoseconds limit) = 0;
  // Time until the first at() is due; negative: none.
  virtual Nanoseconds until_next_deadline() = 0;
  // Makes a run() or wait() in progress, or the next one, return. From any thread; cheap.
  virtual void wake() = 0;
  // Calls back once at `when`, from run(). Dropping the handle cancels.
  virtual std::shared_ptr<void> at(TimePoint when, std::function<void()> callback) = 0;
  // Calls back from run() as soon as possible.
  virtual void post(std::function<void()> callback) = 0;
  // A descriptor that other processes may write to (eventfd) in order to wake
  // run(); -1 where there is none (simulated).
  virtual int doorbell_descriptor() = 0;
  // Calls back from run() as long as that descriptor can be read; it ends when the handle is dropped, which must come
  // before the descriptor is closed. Null where there are no descriptors (simulated).
  virtual std::shared_ptr<void> watch(int /*descriptor*/, std::function<void()> /*callback*/) { return nullptr; }
  // 64 random bits (seeded in simulation; from the kernel otherwise).
  virtual std::uint64_t random() = 0;
};

}  // namespace tutti
