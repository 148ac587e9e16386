#pragma once
// Probe: measures what the ranks' wires and reductions cost, when no profile says it. All ranks take part, on a
// communicator of their own, before anything is planned; the figures of all are the same on all ranks afterwards.
#include <memory>
#include <vector>

#include "comm/placement.h"
#include "comm/profile.h"
#include "comm/rank_info.h"
#include "core/config.h"

namespace tutti::comm {

class Member;

struct Wanted {
  bool within_hosts = false, between_hosts = false;
  bool links() const { return within_hosts || between_hosts; }
};
// What the profiles of these ranks lack for a world of them, but for hosts with more than 64 ranks: they are not probed. The same on all ranks.
Wanted wanted_figures(const std::vector<RankInfo>& ranks, const Settings& settings);

// Of each rank. Blocks, as a rule for less than half a second; `member` must have no operations and is used for nothing
// else afterwards. Errors as of the operations: peer_lost, timeout, network.
Result<std::vector<Figures>> probe(const std::shared_ptr<Member>& member, const std::vector<RankInfo>& ranks,
                                   const Settings& settings, Wanted wanted);

// Whether all ranks hold the same trials of so many ranks: the mark is the same and not 0.
bool have_trials(const std::vector<RankInfo>& ranks);
// Times all_reduces and broadcasts of those algorithms that these prices put close together. The same on all ranks.
// Blocks for less than half a second, as a rule. `member` and errors as above.
Result<Trials> try_candidates(const Member& member, const Prices& prices);

}  // namespace tutti::comm
