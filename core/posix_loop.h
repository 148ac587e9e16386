#pragma once
// The real Loop: epoll, an eventfd as doorbell, deadlines in a map (no timer descriptors). Not for regular files.
//
// Threads as in core/net.h. Streams may be destroyed, made and changed inside of any callback, their own included, and
// may outlive the loop (they just are not called any more).
#include <sys/epoll.h>

#include <atomic>
#include <map>
#include <optional>
#include <vector>

#include "core/config.h"
#include "core/net.h"

namespace tutti {

// Descriptors, what is to be called when they are ready, and the doorbell.
class Poller {
 public:
  using WatchId = std::uint64_t;
  using Callback = std::function<void()>;

  Poller();
  ~Poller();
  Poller(const Poller&) = delete;
  Poller& operator=(const Poller&) = delete;

  // The descriptor stays the caller's; it is set() only and remove()d before it is closed.
  WatchId add(int descriptor);
  void remove(WatchId id);
  // Unsetting costs nothing: the kernel's interest is dropped only when it proves to be a nuisance.
  void set(WatchId id, std::uint32_t event, Callback callback);  // EPOLLIN or EPOLLOUT; empty: not interested
  // Waits for at most `limit` (negative: for ever) and calls back. Returns how many were called.
  int wait(Nanoseconds limit, bool& woken);
  void wake();
  int descriptor() const { return epoll_; }
  int doorbell() const { return doorbell_; }

 private:
  struct Side {
    Callback callback;
    std::uint32_t version = 0;  // counts set()s, so that a callback that replaces itself is not overwritten
  };
  struct Watch {
    int descriptor = -1;  // -1: free
    std::uint32_t generation = 0;
    std::uint32_t armed = 0;  // what the kernel watches for
    Side readable, writable;
    Side& side(std::uint32_t event) { return event == EPOLLIN ? readable : writable; }
  };
  Watch* find(WatchId id);
  void arm(Watch& watch, WatchId id, std::uint32_t events);
  bool dispatch(WatchId id, std::uint32_t events);
  bool call(WatchId id, std::uint32_t event);
  int wait_for_events(Nanoseconds limit, epoll_event* events, int capacity);

  int epoll_ = -1;
  int doorbell_ = -1;
  bool fine_waits_ = true;  // the kernel has epoll_pwait2
  std::atomic<bool> rung_{false};
  std::vector<std::unique_ptr<Watch>> watches_;
  std::vector<std::uint32_t> free_;
};

// Callbacks by time; each runs once, unless its handle is dropped before.
class Deadlines {
 public:
  std::shared_ptr<void> add(TimePoint when, std::function<void()> callback);
  std::optional<TimePoint> next() const;
  int run_due(TimePoint now);

 private:
  using Key = std::pair<TimePoint, std::uint64_t>;
  struct Entries {
    std::map<Key, std::function<void()>> by_time;
  };
  std::shared_ptr<Entries> entries_ = std::make_shared<Entries>();
  std::uint64_t count_ = 0;
};

class PosixNetwork;

class PosixLoop final : public Loop {
 public:
  // Of the settings: interface and port_range. They must have been parsed (read_settings does).
  explicit PosixLoop(const Settings& settings);
  ~PosixLoop() override;

  TimePoint now() override;
  Network& network() override;
  bool run(Nanoseconds limit) override;
  void wait(Nanoseconds limit) override;
  Nanoseconds until_next_deadline() override;
  void wake() override { poller_->wake(); }
  std::shared_ptr<void> at(TimePoint when, std::function<void()> callback) override;
  void post(std::function<void()> callback) override { posted_.push_back(std::move(callback)); }
  int doorbell_descriptor() override { return poller_->doorbell(); }
  std::shared_ptr<void> watch(int descriptor, std::function<void()> callback) override;
  std::uint64_t random() override;

  // Readable when run() has something to dispatch, deadlines and posted callbacks excepted: see until_next_deadline().
  // For nesting in another epoll.
  int descriptor() const { return poller_->descriptor(); }
  const std::shared_ptr<Poller>& poller() const { return poller_; }

 private:
  int run_posted();
  // When run() must do something without a descriptor's being ready.
  std::optional<TimePoint> next_due() const;

  std::shared_ptr<Poller> poller_ = std::make_shared<Poller>();
  Deadlines deadlines_;
  std::vector<std::function<void()>> posted_;
  std::unique_ptr<PosixNetwork> network_;
};

std::unique_ptr<PosixLoop> make_posix_loop(const Settings& settings = {});

}  // namespace tutti
