// The engine's hang report: when an operation has not moved for TUTTI_REPORT_AFTER, all ranks of its communicator print
// one report, the same. They tell each other where they stand; the lowest rank that is there puts it together. Should
// it be the one that stands still, all take the report of the lowest rank that made one, as with verdicts. Nothing ends
// by it. A rank that is asked by a signal (inquiry.h) prints one by itself.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "comm/engine.h"
#include "comm/hang_report.h"
#include "comm/member.h"
#include "core/errno_text.h"
#include "core/log.h"
#include "record/folder.h"

namespace tutti::comm {
namespace {

using std::chrono::milliseconds;

constexpr int kAskAll = 256;  // ranks of a communicator that are all asked; of more, those on the way of the waits
constexpr milliseconds kLongestLead{1000};
constexpr milliseconds kDraftWait{300};   // for the deciding rank's word
constexpr milliseconds kAnswers{300};     // for what all say, asked by a signal

void write_beside(const std::string& recorder, const std::string& text) {
  if (recorder.empty()) return;
  const std::string path = record::hang_report_path(recorder);
  const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (fd < 0 || ::write(fd, text.data(), text.size()) != ssize_t(text.size()))
    log::info("{}: {}", path, errno_text(errno));
  if (fd >= 0) ::close(fd);
}

}  // namespace

// Zero: none. Earlier than any verdict.
Nanoseconds Engine::report_limit() const {
  Nanoseconds limit = settings_.report_after;
  if (settings_.timeout.count() > 0) limit = std::min<Nanoseconds>(limit, Nanoseconds(settings_.timeout) / 2);
  return limit;
}

// The oldest operation of a communicator that does not move speaks for those behind it.
void Engine::look_for_hang(Operation& operation, Nanoseconds quiet, TimePoint now) {
  const Nanoseconds limit = report_limit();
  const Nanoseconds lead = std::min<Nanoseconds>(limit / 2, kLongestLead);
  if (limit.count() == 0 || !directory_ || quiet < limit - lead || operation.hang_told) return;
  Member& member = operation.member();
  for (const auto& other : pending_)
    if (&other->member() == &member && other->execution && other->token < operation.token) return;
  const Watch::Question question{operation.execution->waits_for(), operation.call.collective != Collective::send,
                                 operation.sequence, now - lead};
  ask_all(member, member.watch().to_ask(question, now - lead), now, now - lead);
  if (quiet < limit) return;
  operation.hang_told = true;
  journal_.waits(operation);
  const HangReport report = explain(operation, quiet, now - 2 * lead);
  if (!decides(member))
    directory_->say({.kind = Word::Kind::hang_draft, .communicator = member.id(), .hang = report.encode()});
  consider_report(member, report, world_rank_);
}

// Those that have not been asked since then; of very many those on the way of the waits.
void Engine::ask_all(Member& member, const std::set<int>& on_the_way, TimePoint now, TimePoint since) {
  if (member.rank_count() > kAskAll) return ask(member, on_the_way, now);
  if (member.watch().all_asked() >= since) return;
  member.watch().asked_all(now);
  directory_->say({.kind = Word::Kind::ask, .communicator = member.id(), .about = -1});
  // Nobody asks this rank now: all have heard that all are asked.
  directory_->say({.kind = Word::Kind::report, .communicator = member.id(), .report = report_of(member)});
}

// By a signal: this rank alone prints, what all say a moment later.
void Engine::asked() {
  const TimePoint now = loop_->now();
  std::set<const Member*> seen;
  for (const auto& operation : pending_) {
    Member& member = operation->member();
    if (!directory_ || !operation->execution || !seen.insert(&member).second) continue;
    const Watch::Question question{operation->execution->waits_for(), operation->call.collective != Collective::send,
                                   operation->sequence, now};
    ask_all(member, member.watch().to_ask(question, now), now, now - kAnswers);
  }
  answers_ = loop_->at(now + (seen.empty() ? Nanoseconds(0) : Nanoseconds(kAnswers)),
                       [this, now] { tell_where_all_stand(now - kAnswers); });
}

void Engine::tell_where_all_stand(TimePoint since) {
  const auto describe = [this](int world_rank) { return this->describe(world_rank); };
  std::set<const Member*> told;
  for (const auto& operation : pending_) {
    if (!directory_ || !operation->execution || !told.insert(&operation->member()).second) continue;
    const bool began = operation->last_moved != TimePoint{};
    const HangReport report = explain(*operation, began ? loop_->now() - operation->last_moved : Nanoseconds(0), since);
    log::warning("asked by a signal: {} waits: {}", describe(world_rank_), report.text(describe));
  }
  if (!told.empty()) return;
  std::uint32_t calls = 0;
  for (const auto& [id, member] : members_) calls += member->started();
  log::warning("asked by a signal: {} has nothing pending, it has made {} calls", describe(world_rank_), calls);
}

HangReport Engine::explain(const Operation& operation, Nanoseconds quiet, TimePoint fresh) {
  Member& member = operation.member();
  HangReport about;
  about.communicator = member.id();
  about.sequence = operation.sequence;
  about.collective = operation.call.collective != Collective::send;
  about.call = pack(operation.call);
  about.quiet = std::uint32_t(std::min<std::int64_t>(quiet / milliseconds(1), 0xffffffff));
  about.rank_count = member.rank_count();
  member.watch().heard(member.rank(), report_of(member), loop_->now());
  const Watch::Question question{operation.execution->waits_for(), about.collective, about.sequence, fresh};
  std::set<int> ranks = member.watch().reached(question);
  ranks.insert(member.rank());
  for (int r = 0; r < member.rank_count() && member.rank_count() <= kAskAll; ++r) ranks.insert(r);
  std::map<int, HangKnowledge> known;
  for (const int r : ranks)
    known[r] = {member.watch().fresh(r, fresh), member.world_rank(r), directory_->gone(member.world_rank(r))};
  return explain_hang(std::move(about), known);
}

// A report that this rank or another has put together.
void Engine::consider_report(Member& member, const HangReport& report, int origin) {
  Member::Hang& hang = member.hang();
  if (!member.broken().ok() || hang.told(report)) return;
  if (decides(member)) {
    directory_->say({.kind = Word::Kind::hang, .communicator = member.id(), .hang = report.encode()});
    return tell(member, report);
  }
  if (hang.timer && hang.origin <= origin) return;
  hang.draft = report;
  hang.origin = origin;
  if (hang.timer) return;
  hang.timer = loop_->at(loop_->now() + kDraftWait, [this, alive = member.weak_from_this()] {
    if (const auto still = alive.lock()) {
      const HangReport draft = still->hang().draft;    // telling clears it
      tell(*still, draft);
    }
  });
}

void Engine::tell(Member& member, const HangReport& report) {
  Member::Hang& hang = member.hang();
  if (hang.told(report)) return;
  hang.timer = nullptr;
  hang.last = {report.sequence, report.collective};
  const auto describe = [this](int world_rank) { return this->describe(world_rank); };
  log::warning("hang report: {}", report.text(describe));
  write_beside(journal_.path(), report.json(describe));
  journal_.hang_reported(report.communicator, report.sequence);
  for (const auto& operation : pending_)
    if (&operation->member() == &member && operation->sequence == report.sequence) operation->hang_told = true;
}

}  // namespace tutti::comm
