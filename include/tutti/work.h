#pragma once
// Work: a handle on one asynchronous operation (or on a group of them, which completes when all have).
#include <chrono>
#include <functional>
#include <memory>
#include <tutti/status.h>

namespace tutti {

namespace comm { class Operation; }

// Movable and copyable; copies name the same operation. Dropping it never cancels the operation. An operation completes
// exactly once, with one Status. A default-made Work is complete and ok. The buffers of an operation belong to the library
// from the call until completion. All functions may be called from any thread. In a child of fork() what is pending counts as ended, with
// invalid_state.
class [[nodiscard]] Work {
 public:
  Work();
  explicit Work(Status already_complete);
  explicit Work(std::shared_ptr<comm::Operation> operation);
  Work(const Work&);
  Work(Work&&) noexcept;
  Work& operator=(const Work&);
  Work& operator=(Work&&) noexcept;
  ~Work();

  // Blocks until complete, driving the communication from this thread meanwhile. Returns the operation's Status:
  // ok, mismatch, peer_lost, timeout (TUTTI_TIMEOUT), network, aborted, or what the arguments were refused with.
  Status wait();
  // As wait(), for at most `limit`; false when the time is over (the operation goes on).
  bool wait_for(std::chrono::nanoseconds limit);
  // Whether it is complete; drives the communication a little. Never blocks.
  bool test();
  // The Status of a complete operation; {invalid_state} while it is pending.
  Status status() const;
  // Calls `callback` once, when complete (at once if it is), from the thread that completed it. The callback must not
  // block and must not call wait(); it may start further operations.
  void then(std::function<void(const Status&)> callback);

 private:
  std::shared_ptr<comm::Operation> operation_;
  Status status_;
};

}  // namespace tutti
