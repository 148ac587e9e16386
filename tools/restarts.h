#pragma once
// Restarts: what becomes of a job whose ranks fail, where --max-restarts or --min-ranks allow it to go on. It writes
// into the job's roster (comm/roster.h) who will not come again, and sees there whether the program takes part at all.
// It starts and signals nothing.
#include <string>
#include "comm/roster.h"
#include "tools/supervisor.h"

namespace tutti::tools {

// How a rank ends that has stopped cleanly since too few were left: to be started again later (sysexits' EX_TEMPFAIL).
inline constexpr int kTooFewLeft = 75;

class Restarts {
 public:
  // `roster` outlives this. `most`: processes of this host that are started again.
  Restarts(int roster, int most) : roster_(roster), most_(most) {}
  // What to do now that the process of `rank` has failed; tells the user.
  After after(int rank, const Child& child);
  // Of a program that takes no part: whether all its ranks are to be started again now that all are gone; tells the
  // user. `count`: how often that has been.
  bool all_again(const Outcome& outcome, int& count);
  // Why the job has ended, "" while it has not.
  std::string ended();

 private:
  comm::Roster roster_;
  const int most_;
  int used_ = 0;
};

}  // namespace tutti::tools
