#pragma once
// The virtual clock: what happens when, one thing after another. Knows no hosts, processes or bytes.
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/net.h"

namespace tutti::sim {

class EventQueue;

// Something that events happen to. Its number, given in order of making, stands for it in the trace hash.
class EventTarget {
 public:
  explicit EventTarget(EventQueue& queue);
  virtual ~EventTarget() = default;
  EventTarget(const EventTarget&) = delete;
  EventTarget& operator=(const EventTarget&) = delete;

  virtual void fire(std::uint32_t what) = 0;
  virtual std::string describe(std::uint32_t what) const = 0;   // for the trace, e.g. "process 3 ticks"
  std::uint64_t id() const { return id_; }

 private:
  const std::uint64_t id_;
};

// Events of one time run in the order in which they were scheduled.
class EventQueue {
 public:
  using Observer = std::function<void(TimePoint, const std::string&)>;

  TimePoint now() const { return now_; }
  bool empty() const { return heap_.empty(); }
  TimePoint next_time() const { return heap_.front().time; }          // not for an empty queue
  // A time that has passed means now. The queue keeps the target alive until then.
  void schedule(TimePoint when, std::shared_ptr<EventTarget> target, std::uint32_t what);
  // Runs the next event; the clock moves to its time. False: there was none.
  bool step();
  // Moves the clock to `when`, which must not pass an event or the present.
  void advance(TimePoint when);
  void clear();

  // Adds a fact to the trace hash.
  void note(std::uint64_t fact) { hash_ = (((hash_ << 7) | (hash_ >> 57)) ^ fact) * 0x9e3779b97f4a7c15ULL; }
  std::uint64_t trace_hash() const { return hash_; }
  std::uint64_t event_count() const { return count_; }
  std::uint64_t new_id() { return ++last_id_; }
  void observe(Observer observer) { observer_ = std::move(observer); }

 private:
  struct Event {
    TimePoint time;
    std::uint64_t sequence;
    std::shared_ptr<EventTarget> target;
    std::uint32_t what;
  };
  static bool later(const Event& a, const Event& b) {
    return a.time != b.time ? a.time > b.time : a.sequence > b.sequence;
  }

  // Not zero: code that takes a zero time for "unset" shall not get away with it, nor be punished for it.
  TimePoint now_{std::chrono::hours{1}};
  std::vector<Event> heap_;
  std::uint64_t last_sequence_ = 0;
  std::uint64_t last_id_ = 0;
  std::uint64_t count_ = 0;
  std::uint64_t hash_ = 0xcbf29ce484222325ULL;
  Observer observer_;
};

}  // namespace tutti::sim
