#pragma once
// Agreement: the ranks of a broken communicator agree on who goes on, without a coordinator that must survive. Each
// tells all others whom it takes for lost; what one hears, it takes over, so that beliefs only grow; who hears its own
// belief from everybody it counts on has agreed, and says so, and whoever hears that follows. (The idea of MPI's
// agreement after failures: Bland et al., Post-failure recovery of MPI communication capability, 2013, section 4; here
// with a majority.) A side that cannot be the majority ends, so that a cut network makes one next communicator that
// works, not two: a rank that is cut off in the last moment may agree on a set whose other members then go on without
// it; nothing that needs them completes there, and its next agreement fails. Pure: told of everything, it says what to
// tell; it knows no clock and sends nothing.
#include <cstdint>
#include <map>
#include <set>
#include <vector>

#include "comm/word.h"

namespace tutti::comm {

class Agreement {
 public:
  enum class State { open, agreed, excluded, minority };

  Agreement(int rank, int rank_count) : rank_(rank), rank_count_(rank_count) {}

  // This rank wants it. `proposal`: a number for the next communicator that no other rank proposes.
  void start(std::uint32_t proposal);
  bool started() const { return started_; }
  State state() const { return state_; }

  // Each returns whether what this rank says has changed, so that it must be said at once. After an end they change
  // nothing. `ended`: its process has certainly ended; else it may live where nobody hears it.
  bool lose(int rank, bool ended);
  bool hear(int rank, const Belief& belief);
  // Time is up for these, and for whoever takes this rank for lost.
  bool exclude(const std::vector<int>& silent);

  Belief own() const;
  // Of the next communicator, ascending; once agreed.
  std::vector<int> members() const;
  std::uint32_t id() const { return id_; }
  // Who is waited for: not heard, or of another belief.
  std::vector<int> missing() const;

 private:
  bool matches(int rank) const;
  bool is_majority() const;
  bool conclude();

  const int rank_, rank_count_;
  bool started_ = false;
  State state_ = State::open;
  std::set<int> lost_, ended_;
  std::uint32_t id_ = 0;
  std::map<int, Belief> heard_;
};

}  // namespace tutti::comm
