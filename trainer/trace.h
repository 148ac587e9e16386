#pragma once
// What happened when, in the format that Chrome's about:tracing and Perfetto read. One lane for computing, one for each collective
// in flight at the same time.
#include <chrono>
#include <mutex>
#include <string>
#include <vector>

namespace tutti::trainer {

class Trace {
 public:
  using Clock = std::chrono::steady_clock;
  using Time = Clock::time_point;
  enum class Kind : bool { compute, exchange };

  Trace(bool wanted, int rank) : wanted_(wanted), rank_(rank) {}
  bool wanted() const { return wanted_; }
  // From any thread; nothing unless wanted.
  void add(Kind kind, std::string name, Time begin, Time end, std::size_t bytes = 0);
  // A JSON document. Times are since the first event.
  std::string text() const;

 private:
  struct Event {
    Kind kind;
    std::string name;
    Time begin, end;
    std::size_t bytes;
  };
  const bool wanted_;
  const int rank_;
  mutable std::mutex mutex_;
  std::vector<Event> events_;
};

}  // namespace tutti::trainer
