#include "comm/agreement.h"

#include <algorithm>

namespace tutti::comm {

void Agreement::start(std::uint32_t proposal) {
  if (started_) return;
  started_ = true;
  if (state_ == State::open) id_ = proposal;
  conclude();
}

Belief Agreement::own() const { return {lost_, ended_, state_ == State::agreed, id_}; }

std::vector<int> Agreement::members() const {
  std::vector<int> out;
  for (int r = 0; r < rank_count_; ++r)
    if (!lost_.count(r)) out.push_back(r);
  return out;
}

bool Agreement::matches(int rank) const {
  const auto at = heard_.find(rank);
  return at != heard_.end() && at->second.lost == lost_ && at->second.ended == ended_;
}

std::vector<int> Agreement::missing() const {
  std::vector<int> out;
  for (int r : members())
    if (r != rank_ && !matches(r)) out.push_back(r);
  return out;
}

// More than half of those that may live; of two halves the one with the lowest of them.
bool Agreement::is_majority() const {
  const int may_live = rank_count_ - int(ended_.size()), here = rank_count_ - int(lost_.size());
  if (2 * here != may_live) return 2 * here > may_live;
  for (int r = 0; r < rank_count_; ++r)
    if (!ended_.count(r)) return !lost_.count(r);
  return false;
}

bool Agreement::conclude() {
  if (!started_ || state_ != State::open || !missing().empty()) return false;
  state_ = is_majority() ? State::agreed : State::minority;
  if (state_ != State::agreed) return false;
  const int lowest = members().front();
  if (lowest != rank_) id_ = heard_.at(lowest).id;
  return true;
}

bool Agreement::lose(int rank, bool ended) {
  if (state_ != State::open || rank == rank_) return false;
  bool changed = lost_.insert(rank).second;
  changed |= ended && ended_.insert(rank).second;
  conclude();
  return changed;
}

bool Agreement::hear(int rank, const Belief& belief) {
  if (state_ != State::open || rank == rank_ || rank < 0 || rank >= rank_count_) return false;
  for (const auto* ranks : {&belief.lost, &belief.ended})
    if (!ranks->empty() && *ranks->rbegin() >= rank_count_) return false;
  if (belief.agreed) {
    lost_ = belief.lost;
    ended_ = belief.ended;
    id_ = belief.id;
    state_ = lost_.count(rank_) ? State::excluded : State::agreed;
    return state_ == State::agreed;
  }
  heard_[rank] = belief;
  const std::size_t before = lost_.size() + ended_.size();
  for (const int r : belief.lost)
    if (r != rank_) lost_.insert(r);
  for (const int r : belief.ended)
    if (r != rank_) ended_.insert(r);
  const bool changed = lost_.size() + ended_.size() != before;
  return conclude() || changed;
}

bool Agreement::exclude(const std::vector<int>& silent) {
  if (state_ != State::open) return false;
  const std::size_t before = lost_.size();
  for (const int r : silent)
    if (r != rank_) lost_.insert(r);
  for (const auto& [r, belief] : heard_)
    if (belief.lost.count(rank_)) lost_.insert(r);
  conclude();
  return lost_.size() != before;
}

}  // namespace tutti::comm
