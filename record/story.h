#pragma once
// Story: what the recordings of one job tell together: how each operation went, who came late, which link is slow, and
// where it stands or ended. Late ranks and slow links are told apart: a rank is late by the starts of its calls, a link
// is slow by the bytes it moved while bytes were on it. It knows numbers only; calls are printed elsewhere.
#include <cstdint>
#include <string>
#include <vector>

#include "record/recording.h"

namespace tutti::record {

// One collective operation of one communicator, as far as the recorders go back.
struct Chapter {
  std::uint32_t communicator = 0, sequence = 0;
  std::uint64_t call = 0;                       // that most ranks made; of equals the lowest rank's
  struct Part {
    int rank = 0;                               // world rank
    Operation operation;
    std::int64_t started = 0, ended = 0;        // on the job's common clock; ended 0: pending
    bool timed = true;                          // false: `started` is a guess, and no peer knows better
  };
  std::vector<Part> parts;                      // those that called, by rank
  std::vector<int> not_called, other_call;      // members; other_call are in parts, too
  std::vector<int> pending;                     // called, and not done
  int last = -1;                                // who called last; those of whom that is known
  std::int64_t skew = 0;                        // ns from the first call to the last one
  std::int64_t lag = 0;                         // ns from the median of the others' calls to the last one
  enum class End {
    complete,
    running,
    waits_for_call,
    mismatch,
    waits_for_dead,
    waits_for_stopped,
    failed,
    stuck
  } end = End::complete;
  std::vector<int> culprits;                    // of waits_*, mismatch
};

struct Late {
  int rank = 0;
  std::size_t times = 0,
              of = 0;  // last by kNotableLag or more, for time outside the library; of operations that all called
  std::int64_t median = 0, total = 0;           // ns of those lags
  bool notable() const { return times * 2 >= of && of >= 4; }
};

struct Link {
  int from = 0, to = 0;
  std::string wire;
  std::uint64_t bytes = 0;
  double rate = 0, others = 0;  // bytes a second while its receiver waited for it; median of the other links, 0: none
  bool slow() const { return others > 0 && rate < kSlow * others; }
  static constexpr double kSlow = 0.4;
};

// A link that broke, or fell silent, as the rank at one end saw it.
struct Break {
  int rank = 0, peer = 0;
  bool silent = false;
  int code = 0;                                 // why it broke
  std::int64_t at = 0, mended_at = 0;           // mended_at 0: it was not, as far as the recorder goes
  std::uint64_t resent = 0;                     // frames that were sent again on this link until then
};

struct Story {
  std::uint64_t job = 0;
  std::vector<Recording> ranks;                 // by rank; of several of one rank the newest
  std::vector<int> missing;                     // no recorder there
  std::vector<std::int64_t> shift;              // by `ranks`: ns that were added to its times
  std::vector<Chapter> chapters;                // by first start
  std::vector<Late> late;                       // most often late first
  std::vector<Link> links;                      // slowest first
  std::vector<Break> breaks;                    // by time
  const Recording* recording(int rank) const;
};

inline constexpr std::int64_t kNotableLag = 100'000;             // ns
inline constexpr std::uint64_t kPairMark = 1u << 31;             // in Operation::communicator: a send or recv
inline constexpr std::uint64_t kLeastServiceBytes = 1 << 20;     // a link's rate is told from so many on

// One a job, the one with the newest recordings first.
std::vector<Story> tell(std::vector<Recording> recordings);

}  // namespace tutti::record
