#pragma once
// Rounds: schedules in which all ranks do the same thing at a time, one message after another, so that what they cost
// is known without making them: a few figures a round instead of a list of steps a rank.
//
// Places number what a rank holds in some way that is the same for all. A round sends the run [sent, sent + count) of
// them and puts what comes at [received, received + count). What it needs of
// earlier rounds is told by where these overlap.
#include <cstdint>
#include <functional>
#include <vector>

#include "algorithms/borders.h"

namespace tutti::algorithms {

class Rounds {
 public:
  using Receivers = std::function<void(int rank, std::vector<int>& out)>;   // appends to an empty vector

  // A message holds `part` of n. At most 64 rounds.
  void add(Receivers to, double part, int sent, int received, int count);
  // As the last one, but what it carries is of these earlier rounds: bit j.
  void needs(std::uint64_t earlier) { rounds_.back().carries = earlier; }
  // Of the last one: it is two messages at ranks where the blocks rank + first, ... pass the last block.
  void split_behind(int first) { rounds_.back().first = first; }

  int longest_chain() const;
  int most_messages(int rank_count) const;   // multicasts aside
  std::vector<Border> borders(const Request& request) const;

 private:
  struct Round {
    Receivers to;
    double part = 0;
    int received = 0, count = 0, first = -1;
    std::uint64_t carries = 0;   // rounds of which something is sent on
    std::uint64_t meets = 0;     // rounds that wrote where this one is received
  };
  static int messages(const Round& round, int rank, int rank_count);
  std::vector<Round> rounds_;
};

// To the rank so far away, around.
Rounds::Receivers around_by(int distance, int rank_count);

}  // namespace tutti::algorithms
