#pragma once
// Lineup: who can compete on this machine, and the command that starts each.
#include <string>
#include <vector>

#include "perf/compare/match.h"

namespace tutti::perf::compare {

// Over loopback TCP ours has no checksums, as no peer has any; as it is by default it takes part out of competition.
inline const std::string kOurs = "tutti", kChecked = "tutti+crc", kLimit = "limit";

struct Entrant {
  std::string name;
  std::string command;      // for the shell; what the program is asked follows
};

// Of programs beside this one, in `folder`; those that were not built are left out. gloo has TCP only and competes with
// that on shared memory too. "limit": what the machine itself does, where that can be said. Over "link" (link.sh) MPICH is
// left out: its UCX finds no way from one network namespace to another.
std::vector<Entrant> lineup(const std::string& folder, const Field& field);

// Python with torch_tutti, of the programs' build in `folder`, and a script of
// this folder; what the script is asked follows.
std::string torch_command(const std::string& folder, int ranks, const std::string& script);

}  // namespace tutti::perf::compare
