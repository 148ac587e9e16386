#pragma once
// Rounds: how a job on several hosts is restarted whose program takes no part in the roster (comm/roster.h): when one
// of its processes fails, the launchers of all hosts stop theirs and start all anew, together; the job is over when all
// hosts are done in the same round. Round 0 is the first start. What launchers tell one another is on the roster:
//
//   again ROUND TEXT      all are started again: TEXT says what has failed
//   round ROUND PORT      where rank 0 of that round listens, from host 0
//   done ROUND HOST       all processes of that host have ended well
//   over TEXT             no more: everybody stops
#include <atomic>
#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>
#include "comm/roster.h"
#include "tools/child.h"
#include "tools/job.h"
#include "tools/supervisor.h"

namespace tutti::tools {

struct RoundsPlan {
  int most = 0;                                                 // restarts
  std::chrono::milliseconds limit{120'000};                     // for host 0 to say where the next round meets
  std::function<bool()> stop = [] { return false; };            // no longer wanted
  std::function<bool(int host)> lives = [](int) { return true; };   // its launcher is there, as far as is known here
  std::function<void(const std::string&)> tell = [](const std::string&) {};   // a line for the user
};

class Rounds {
 public:
  // `roster` outlives this.
  static Result<std::unique_ptr<Rounds>> open(int roster, const RoundsPlan& plan);
  ~Rounds();
  Rounds(const Rounds&) = delete;
  Rounds& operator=(const Rounds&) = delete;

  // The newest round, for who comes late; sets restart count and port where it is not the first.
  Status join(Job& job);
  // A text comes there when this host's processes are to be stopped for another host's sake.
  int stop() const { return stop_.get(); }
  // A process of this host has failed, or the job was told to end: all hosts hear of it.
  void fail(const std::string& what, bool again);
  // Now that all processes of this host have ended: whether there is a further round, which `job` then describes. Waits
  // for other hosts that are still at work.
  bool next(const Outcome& outcome, Job& job);
  // Why there is no further one.
  std::optional<std::string> over();
  // Some process of the job takes part in the roster: then all of this is silent.
  bool silent();

 private:
  struct Said {
    int round = 0;                          // the newest
    std::string why;                        // of it
    std::map<int, int> ports;               // by round
    std::map<int, std::set<int>> done;      // hosts by round
    std::optional<std::string> over;
  };
  Rounds(int roster, const RoundsPlan& plan) : descriptor_(roster), roster_(roster), heard_(roster), plan_(plan) {}
  static Said read(comm::Roster& roster);
  void watch();
  bool all_done(const Job& job);
  Status meet(Job& job);
  void enter(int round);

  const int descriptor_;
  comm::Roster roster_, heard_;             // heard_: the watcher's
  const RoundsPlan plan_;
  Descriptor stop_, stop_end_;
  std::mutex mutex_;                        // of the next two
  int round_ = 0;
  bool told_ = false;                       // that this round is over
  std::atomic<bool> ending_{false};
  std::thread watcher_;
};

}  // namespace tutti::tools
