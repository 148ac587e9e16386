#pragma once
// Reaching one process that may have several addresses: candidates are tried side by side, each begun when the one
// before has failed or was slow, and the first with which the handshake succeeds wins. One round; who wants more rounds
// asks again.
#include <span>
#include <string>
#include <vector>

#include "comm/handshake.h"

namespace tutti::comm {

struct Dialled {
  std::unique_ptr<Stream> stream;
  PeerHello peer;
};

// How long one candidate is waited for before the next is begun beside it.
inline constexpr std::chrono::milliseconds kNextCandidateAfter{100};

// Arguments must outlive the task. Error: the last candidate's that failed by something better than a refusal, else the
// last; its text names the address. mismatch, network, timeout.
Task<Result<Dialled>> dial(Loop& loop, const std::vector<std::string>& candidates, const JobKey& key, PeerHello own,
                           TimePoint deadline);

}  // namespace tutti::comm
