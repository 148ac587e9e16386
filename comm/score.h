#pragma once
// Score: the parts of all ranks side by side, compact, every message matched with its receive. What a Rehearsal plays.
// Knows groups and bytes, no time. Parts are made one at a time and forgotten. What stays, with what a Rehearsal adds:
// 68 bytes a step, 16 a message, 20 a dependency (and 32 more a message while it is written): 0.8 MB a rank for a ring
// of 2,048, 6 KB a rank for recursive doubling among 65,536.
//
// Folding. Where ranks r and r + width do the same (peers shifted alike, around at the end) and lie alike in their
// groups, the first `width` ranks stand for all: what one sends to a rank outside arrives at the one inside that stands
// for it. The symmetry is checked on some translations of every rank, and on every message, not proved for all ranks.
#include <cstdint>
#include <tutti/status.h>
#include <functional>
#include <vector>

#include "comm/part.h"

namespace tutti::comm {

// `peers` messages, from `first` on: of a send in Score::messages, of a receive by slot.
struct ScoreStep {
  std::uint64_t bytes = 0;
  std::uint32_t segments = 0;  // 0: does not happen
  std::uint32_t rank = 0;      // inside 0..width-1
  std::uint32_t peers = 0;
  std::uint32_t first = 0;            // send: of its messages; receive: of its slots
  std::uint32_t first_ahead = 0;      // see Score::ahead
  std::uint32_t first_next = 0;       // see Score::next
  std::uint32_t waits = 0;            // steps on its lanes that must be on their way before this one starts
  std::uint32_t operands = 0;         // of its reduction
  algorithms::StepKind kind = algorithms::StepKind::send;
};

struct ScoreMessage {
  std::uint32_t step = 0;    // the receive
  std::uint32_t slot = 0;    // there, one a sender
  std::uint32_t border = 0;  // the level whose border it crosses; levels: none
};

// An earlier step on the same memory: the later one may go as far as this one has come.
struct Ahead {
  std::uint32_t step = 0;
  std::int64_t lead = 0;  // bytes from where the later one's memory begins to where this one's does
};

struct Follower {
  enum class When : std::uint32_t { progress, submitted };  // what of the earlier step: anything done; all on its way
  static constexpr std::uint32_t kMaxStep = (1u << 31) - 1;
  Follower(std::uint32_t later, When how) : step(later & kMaxStep), when(how) {}
  std::uint32_t step : 31;
  When when : 1;
};

struct Score {
  // What is refused beyond: memory (about 2 GB) and time (minutes).
  static constexpr std::uint64_t kMaxMessages = 17'000'000;
  static constexpr std::uint64_t kMaxSegments = 100'000'000;

  int rank_count = 0;
  int width = 0;                         // ranks that are there; fewer than rank_count: folded
  std::vector<std::vector<int>> levels;  // the machine's; by rank
  std::uint64_t segment_bytes = 0;       // 0: whole messages
  std::vector<ScoreStep> steps;          // of rank 0, then of rank 1, ...; one more at the end
  std::vector<ScoreMessage> messages;
  std::vector<Ahead> ahead;              // from first_ahead to the next step's
  std::vector<Follower> next;            // from first_next to the next step's: later steps that wait for this one
  std::uint32_t slots = 0;
  std::uint64_t segments = 0;  // of all messages

  std::uint64_t segment_of(const ScoreStep& step, std::uint32_t index) const;  // bytes
  std::uint32_t segments_in(const ScoreStep& step, std::uint64_t bytes) const;  // whole ones
  std::size_t memory_bytes() const;
};

// Asked after each rank: how many are written, of how many. False: give up.
using GoOn = std::function<bool(int done, int of)>;

// unsupported: more than the limits. aborted: go_on said no. internal: a send without
// its receive, or of another size; names them.
Result<Score> write_score(const algorithms::Generator& generator, const algorithms::Request& request, const Load& load,
                          const std::vector<std::vector<int>>& levels, int width, const GoOn& go_on = {});

// The width to which a schedule can be folded, and the bytes that make all blocks equal for it (at least load.bytes).
// unsupported: says why it cannot.
struct Fold {
  int width = 0;
  std::uint64_t bytes = 0;
};
Result<Fold> find_fold(const algorithms::Generator& generator, const algorithms::Request& request, const Load& load,
                       const std::vector<std::vector<int>>& levels);

}  // namespace tutti::comm
