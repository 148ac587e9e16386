// What the engine does when an operation does not move: it asks whom the operation waits for, and those whom they wait
// for, and ends it by the clock that fits the answers. TUTTI_TIMEOUT is for ranks that do not answer, and for circles;
// TUTTI_ABSENT_TIMEOUT for ranks that answer and have not made the call (they may be writing a checkpoint).
#include <fmt/format.h>

#include <algorithm>

#include "comm/engine.h"
#include "comm/member.h"

namespace tutti::comm {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kLookEvery{50};
constexpr milliseconds kNoteAfter{500};  // without progress: where it stands goes to the flight recorder
constexpr int kAsks = 5;               // in the second half of the shorter clock; more seldom later
constexpr int kFreshAsks = 3;          // an answer counts until so many more questions would have been asked

}  // namespace

// Cheap: looks every kLookEvery.
bool Engine::check_deadlines() {
  const TimePoint now = loop_->now();
  if (now < next_deadline_check_) return false;
  next_deadline_check_ = now + kLookEvery;
  if (!threaded_) journal_.beat();
  look_after_links(now);
  note_repairs(now);
  const auto pending = pending_;
  bool any = false;
  for (const auto& operation : pending) {
    const bool runs = operation->execution ? !operation->execution->finished() : !operation->meets.empty();
    if (operation->complete() || !runs) continue;
    const std::uint64_t moved = operation->execution ? operation->execution->moved_bytes() : 0;
    if (moved != operation->last_moved_bytes || operation->last_moved == TimePoint{}) {
      operation->last_moved_bytes = moved;
      operation->last_moved = now;
    } else {
      any |= look_at(*operation, now);
    }
  }
  return any;
}

// Whether the operation has failed.
bool Engine::look_at(Operation& operation, TimePoint now) {
  const milliseconds timeout = settings_.timeout, absent = settings_.absent_timeout;
  const milliseconds shorter = timeout.count() == 0  ? absent
                               : absent.count() == 0 ? timeout
                                                     : std::min(timeout, absent);
  const Nanoseconds quiet = now - operation.last_moved, half = Nanoseconds(shorter) / 2;
  if (operation.execution && quiet >= kNoteAfter && operation.noted_moved_bytes != operation.last_moved_bytes) {
    operation.noted_moved_bytes = operation.last_moved_bytes;
    journal_.waits(operation);
  }
  if (operation.execution) look_for_hang(operation, quiet, now);
  if (shorter.count() == 0 || quiet < half) return false;
  Member& member = operation.member();
  const bool collective = operation.call.collective != Collective::send;
  const Nanoseconds ask_every = std::max(half, quiet / 2) / kAsks;
  const Watch::Question question{operation.waits_for(), collective, operation.sequence, now - kFreshAsks * ask_every};
  member.watch().heard(member.rank(), report_of(member), now);      // whoever else may have asked us
  if (directory_) ask(member, member.watch().to_ask(question, now - ask_every), now);
  if (quiet <= shorter) return false;
  const Holdup holdup = member.watch().find(question);
  const milliseconds limit = holdup.why == Holdup::Why::absent ? absent : timeout;
  if (limit.count() == 0 || quiet <= limit) return false;
  fail(member, stall_of(operation, holdup, quiet));
  return true;
}

void Engine::ask(Member& member, const std::set<int>& ranks, TimePoint now) {
  for (const int rank : ranks) {
    if (rank == member.rank()) continue;
    member.watch().asked(rank, now);
    directory_->say({.kind = Word::Kind::ask, .communicator = member.id(), .about = member.world_rank(rank)});
  }
}

Report Engine::report_of(const Member& member) const {
  Report report;
  report.started = member.started();
  std::set<int> waits;
  for (const auto& operation : pending_) {
    const std::vector<int> awaited = operation->waits_for();
    if (&operation->member() != &member || (!operation->execution && awaited.empty())) continue;
    report.pending = true;
    waits.insert(awaited.begin(), awaited.end());
    if (!operation->execution) continue;
    const bool collective = operation->call.collective != Collective::send;
    for (Stand stand : operation->execution->stands(kMaxStands)) {
      stand.sequence = operation->sequence;
      stand.collective = collective;
      stand.call = pack(operation->call);
      report.stands.push_back(stand);
    }
  }
  report.waits_for.assign(waits.begin(), waits.end());
  std::stable_sort(report.stands.begin(), report.stands.end(),
                   [](const Stand& a, const Stand& b) { return std::int32_t(a.sequence - b.sequence) < 0; });
  if (report.stands.size() > kMaxStands) report.stands.resize(kMaxStands);
  return report;
}

Status Engine::stall_of(const Operation& operation, const Holdup& holdup, Nanoseconds quiet) const {
  const Member& member = operation.member();
  std::string who;
  for (const int rank : operation.waits_for()) who += (who.empty() ? "" : ", ") + describe(member.world_rank(rank));
  std::string text = fmt::format("operation {} {}: nothing moved for {:.3g} s; {} waits for {}", operation.sequence,
                                 to_string(operation.call), std::chrono::duration<double>(quiet).count(),
                                 describe(world_rank_), who.empty() ? "nobody" : who);
  const std::string culprit = holdup.rank < 0 ? "" : describe(member.world_rank(holdup.rank));
  switch (holdup.why) {
    case Holdup::Why::silent:
      text += fmt::format(
          "; {} does not answer: is its process stopped, or its host out of reach or out of memory? (TUTTI_TIMEOUT "
          "changes the limit)",
          culprit);
      break;
    case Holdup::Why::absent:
      text += fmt::format(
          "; {} is alive but has not made the call, it has made {} (TUTTI_ABSENT_TIMEOUT changes the limit)", culprit,
          holdup.started);
      break;
    case Holdup::Why::stuck:
      text +=
          "; all of them answer and wait: do all ranks make the same calls in the same order? (TUTTI_TIMEOUT changes "
          "the limit)";
      break;
  }
  return Status(Code::timeout, text, holdup.rank);
}

}  // namespace tutti::comm
