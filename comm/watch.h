#pragma once
// Watch: who holds an operation up. Collects what the ranks of a communicator say of themselves and follows the waits
// from rank to rank, to one that does not answer, or has not made the call, or to a circle. It asks nobody itself and
// knows no clock.
#include <map>
#include <set>
#include <vector>

#include "comm/word.h"
#include "core/net.h"

namespace tutti::comm {

struct Holdup {
  enum class Why { silent, absent, stuck } why = Why::stuck;
  int rank = -1;                    // the culprit; -1: nobody is waited for
  std::uint32_t started = 0;        // absent: operations that it has called
};

class Watch {
 public:
  void heard(int rank, Report report, TimePoint now) { heard_[rank] = {std::move(report), now}; }
  // Somebody has asked this rank, so that others need not.
  void asked(int rank, TimePoint now) { asked_[rank] = now; }
  void asked_all(TimePoint now) { all_asked_ = now; }
  TimePoint all_asked() const { return all_asked_; }

  struct Question {
    std::vector<int> awaited;       // whom the operation waits for
    bool collective = true;
    std::uint32_t sequence = 0;     // of the collective
    TimePoint fresh;                // reports from before do not count
  };
  // A silent one before an absent one before a circle; of several the lowest rank.
  Holdup find(const Question& question) const;
  // Ranks on the way that have not been asked since `since`.
  std::set<int> to_ask(const Question& question, TimePoint since) const;
  std::set<int> reached(const Question& question) const;     // all that are waited for, directly or through others
  const Report* fresh(int rank, TimePoint since) const;      // null: nothing since

 private:
  struct Heard {
    Report report;
    TimePoint at;
  };
  std::map<int, Heard> heard_;
  std::map<int, TimePoint> asked_;
  TimePoint all_asked_{};
};

}  // namespace tutti::comm
