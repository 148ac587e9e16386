#pragma once
// Shrinking: how the ranks of a communicator come to their Agreement: says what this rank believes to all others over
// the control plane, again every kRepeat, hears theirs, looks after ranks that have ended, and loses patience with the
// silent. Under the engine's lock.
#include <chrono>
#include <map>
#include <memory>
#include <vector>

#include "comm/agreement.h"
#include "comm/engine.h"

namespace tutti::comm {

class Shrinking {
 public:
  Shrinking(Engine& engine, Member& member);

  // `done` completes with the end of it: ok, or peer_lost for a minority and for a rank that was excluded. Once.
  // `without`: counted like ranks that have ended.
  void begin(std::shared_ptr<Operation> done, std::chrono::milliseconds limit, const std::vector<int>& without);
  bool begun() const { return agreement_.started(); }
  void hear(int rank, const Belief& belief);
  // Ends `done` early.
  void stop(const Status& why);
  const Agreement& agreement() const { return agreement_; }

 private:
  void look();             // for ranks that have ended
  void
  keep_linked();  // to the next rank that lives, so that what is said goes round; and to those of whom nothing is heard
  void lose_patience();
  void say();
  void tick();
  void finish();
  Status outcome() const;

  Engine& engine_;
  Member& member_;
  Agreement agreement_;
  std::shared_ptr<Operation> done_;
  std::shared_ptr<void> timer_;
  TimePoint deadline_{}, said_{};
  std::map<int, TimePoint> heard_;
};

}  // namespace tutti::comm
