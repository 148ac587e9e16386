#include "comm/shrinking.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "comm/member.h"

namespace tutti::comm {
namespace {

constexpr std::chrono::milliseconds kRepeat{100};
constexpr std::chrono::seconds kSilence{1};         // who takes part says something far more often
constexpr int kLinks = 8;                           // to ranks of whom nothing is heard, at a time

}  // namespace

Shrinking::Shrinking(Engine& engine, Member& member)
    : engine_(engine), member_(member), agreement_(member.rank(), member.rank_count()) {}

void Shrinking::begin(std::shared_ptr<Operation> done, std::chrono::milliseconds limit,
                      const std::vector<int>& without) {
  done_ = std::move(done);
  deadline_ = engine_.loop().now() + limit;
  const Status& broken = member_.broken();
  const bool lost =
      broken.code() == Code::peer_lost || broken.code() == Code::timeout || broken.code() == Code::network;
  if (lost && broken.culprit() >= 0) agreement_.lose(broken.culprit(), false);
  for (const int r : without) agreement_.lose(r, true);
  look();
  agreement_.start(engine_.allot_communicator());
  tick();
}

void Shrinking::look() {
  for (int r = 0; r < member_.rank_count(); ++r) {
    const int world = member_.world_rank(r);
    if (r != member_.rank() && engine_.directory().gone(world)) agreement_.lose(r, engine_.directory().ended(world));
  }
}

void Shrinking::keep_linked() {
  const std::vector<int> members = agreement_.members();
  const auto own = std::find(members.begin(), members.end(), member_.rank());
  const int next = own + 1 == members.end() ? members.front() : own[1];
  const bool its_turn = members.size() == 2 && next < member_.rank();      // of two the lower one links
  if (members.size() > 1 && !its_turn) engine_.directory().link(member_.world_rank(next));
  int links = 0;
  for (const int r : agreement_.missing())
    if (!heard_.count(r) && links++ < kLinks) engine_.directory().link(member_.world_rank(r));
}

void Shrinking::lose_patience() {
  const TimePoint now = engine_.loop().now();
  if (now < deadline_) return;
  std::vector<int> silent;
  for (const int r : agreement_.missing())
    if (const auto at = heard_.find(r); at == heard_.end() || now - at->second >= kSilence) silent.push_back(r);
  agreement_.exclude(silent);
}

void Shrinking::say() {
  said_ = engine_.loop().now();
  engine_.directory().say({.kind = Word::Kind::belief, .communicator = member_.id(), .belief = agreement_.own()});
}

void Shrinking::tick() {
  if (!done_) return;
  look();
  lose_patience();
  keep_linked();
  say();
  if (agreement_.state() != Agreement::State::open) return finish();
  timer_ = engine_.loop().at(engine_.loop().now() + kRepeat, [this] { tick(); });
}

void Shrinking::hear(int rank, const Belief& belief) {
  heard_[rank] = engine_.loop().now();
  const bool open = agreement_.state() == Agreement::State::open;
  const bool changed = agreement_.hear(rank, belief);
  if (!begun()) return;
  // Somebody who has missed the end.
  const bool late = !open && agreement_.state() == Agreement::State::agreed && !belief.agreed &&
                    engine_.loop().now() - said_ >= kRepeat / 2;
  if (changed || late) say();
  if (agreement_.state() != Agreement::State::open) finish();
}

void Shrinking::stop(const Status& why) {
  timer_.reset();
  if (auto done = std::exchange(done_, nullptr)) engine_.complete(*done, why);
}

Status Shrinking::outcome() const {
  switch (agreement_.state()) {
    case Agreement::State::excluded:
      return Status(Code::peer_lost,
                    "the others go on without this rank: it was lost to them, or did not call shrink in time",
                    member_.rank());
    case Agreement::State::minority:
      return Status(Code::peer_lost,
                    fmt::format("only the ranks {} of {} can be reached: others may go on without them, so they must "
                                "end (the side that is the "
                                "larger half of those that may live goes on)",
                                fmt::join(agreement_.members(), ", "), member_.rank_count()),
                    member_.broken().culprit());
    default: return {};
  }
}

void Shrinking::finish() { stop(outcome()); }

}  // namespace tutti::comm
