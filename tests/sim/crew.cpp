#include "tests/sim/crew.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "comm/join.h"
#include "transport/sim/loop_handle.h"

namespace tutti::sim {

namespace {

constexpr int kMeetingPort = 29500;
constexpr int kMostPasses = 10'000;          // of an engine in one tick: more is a pass that always says it moved something
constexpr Nanoseconds kShortestNap = microseconds{4};
constexpr Nanoseconds kLongestNap = milliseconds{2};
constexpr Nanoseconds kIdleTick = milliseconds{500};

}  // namespace

CrewRank::CrewRank(Crew& crew, int number, SimLoop& process, comm::JoinRequest request)
    : rank(number), loop(process), crew_(crew), request_(std::move(request)) {
  loop.on_tick([this] { tick(); });
}

CrewRank::~CrewRank() {
  loop.on_tick(nullptr);
  survivors_ = {};
  communicator_ = {};
  member_.reset();
}

bool CrewRank::done() const { return completed == crew_.options.exchanges; }

bool CrewRank::reaches(int other) const {
  if (!member_) return false;
  auto held = member_->engine()->lock();
  return member_->engine()->wire(other).connection != nullptr;
}

void CrewRank::tick() {
  if (!joined) {
    loop.run({});
    join();
  }
  if (!member_) return;
  moved_ = false;
  drive();
  collect();
  start_next();
  carry_on();
  set_alarm();
}

void CrewRank::join() {
  if (verdict) return;
  if (!joining_) {
    joining_ = comm::join(loop, request_);
    joining_.start();
  }
  if (!joining_.done()) return;
  Result<std::unique_ptr<comm::World>> world = joining_.result();
  if (!world) return end(world.status());
  auto member = comm::make_member(std::make_unique<LoopHandle>(loop), std::move(*world), request_.settings, false);
  joining_ = {};
  if (!member) return end(member.status());
  joined = true;
  member_ = *member;
  communicator_ = comm::Member::handle(member_);
}

void CrewRank::drive() {
  comm::Engine& engine = *member_->engine();
  for (int pass = 0; pass < kMostPasses; ++pass) {
    auto held = engine.lock();
    if (!engine.progress()) break;
    moved_ = true;
  }
  engine.drive();
}

void CrewRank::collect() {
  for (auto it = pending_.begin(); it != pending_.end();) {
    if (!it->work.test()) {
      ++it;
      continue;
    }
    moved_ = true;
    judge(*it);
    it = pending_.erase(it);
  }
}

void CrewRank::judge(const Pending& pending) {
  const Status status = pending.work.status();
  if (!status.ok()) {
    spoiled += !pending.share.input_intact();
    return end(status);
  }
  ++completed;
  if (pending.share.right()) return;
  if (wrong++ > 0) return;
  const Exchange& x = pending.share.exchange();
  first_wrong = fmt::format("{}: {}{} {}[{}] {} root {}{}, input {}", pending.index, name_of(x.what), x.ragged ? "_v" : "", name_of(x.type),
                            x.count, name_of(x.op), x.root, x.in_place(rank) ? " in place" : "", pending.share.input_intact() ? "intact" : "changed");
}

void CrewRank::start_next() {
  const CrewOptions& options = crew_.options;
  while (!verdict && !hold && started_ < options.exchanges && static_cast<int>(pending_.size()) < options.most_pending &&
         loop.now() >= next_start_) {
    pending_.push_back({started_, Share(options.agenda(rank, started_), rank), {}});
    ++started_;
    pending_.back().work = pending_.back().share.start(communicator_);
    next_start_ = loop.now() + crew_.world.dice().up_to(options.pause) + (rank == options.late_rank ? options.late_by : Nanoseconds{0});
    moved_ = true;
  }
}

// After the verdict: shrinks, and exchanges among those who are left, the same for all by their number.
void CrewRank::carry_on() {
  if (crew_.options.carry_on == 0 || !verdict || !pending_.empty() || second_verdict) return;
  if (!shrinking_) shrinking_ = member_->begin_shrink(milliseconds{2000});
  if (!shrinking_->test()) return;
  if (!shrunk) {
    shrunk = shrinking_->status();
    moved_ = true;
    if (!shrunk->ok()) return;
    auto survivors = member_->take_survivors();
    if (!survivors) return void(shrunk = survivors.status());
    survivors_ = std::move(*survivors);
    new_place = {survivors_.rank(), survivors_.rank_count()};
  }
  if (!shrunk->ok() || carried == crew_.options.carry_on) return;
  if (carrying_.empty()) {
    Dice dice{crew_.world.seed() * 77 + static_cast<std::uint64_t>(carried)};
    carrying_.push_back({carried, Share(any_exchange(dice, new_place[1], 4096), new_place[0]), {}});
    carrying_.back().work = carrying_.back().share.start(survivors_);
    moved_ = true;
  }
  Pending& pending = carrying_.back();
  if (!pending.work.test()) return;
  moved_ = true;
  if (!pending.work.status().ok()) second_verdict = pending.work.status();
  else if (++carried, !pending.share.right()) ++wrong;
  carrying_.clear();
}

void CrewRank::end(const Status& status) {
  if (!verdict) {
    verdict = status;
    verdict_at = loop.now();
  } else if (*verdict != status) {
    later_verdicts.insert(status.to_string());
  }
}

void CrewRank::set_alarm() {
  const bool carries = crew_.options.carry_on > 0 && verdict && !second_verdict && (!shrunk || (shrunk->ok() && carried < crew_.options.carry_on));
  const bool waits = !pending_.empty() || (!over() && !hold) || carries;
  if (!waits) {                              // as its progress thread does
    alarm_ = loop.at(loop.now() + kIdleTick, [] {});
    return;
  }
  nap_ = moved_ ? kShortestNap : std::min<Nanoseconds>(std::max(nap_, kShortestNap) * 2, kLongestNap);
  alarm_ = loop.at(loop.now() + nap_, [] {});
}

Crew::Crew(std::uint64_t seed, const CrewOptions& wanted) : options(wanted), world(seed, wanted.world) {
  for (int h = 0; h < options.hosts; ++h) world.add_host();
  const bool neighbours = world.dice().chance(0.5);
  for (int r = 0; r < options.ranks; ++r) {
    const int host = neighbours ? r * options.hosts / options.ranks : r % options.hosts;
    comm::JoinRequest request;
    request.rank = r;
    request.rank_count = options.ranks;
    request.addresses = {"host0:" + std::to_string(kMeetingPort)};
    request.key = comm::make_job_key("the job");
    request.settings = options.settings;
    request.host = HostFacts{.name = "host" + std::to_string(host), .identity = 100 + std::uint64_t(host), .pid = 1000 + r, .cores = 64};
    ranks_.push_back(std::make_unique<CrewRank>(*this, r, world.add_process(host), std::move(request)));
    ranks_.back()->hold = true;
  }
}

Crew::~Crew() = default;

bool Crew::assemble() {
  const auto ready = [](const CrewRank& rank) { return rank.joined; };
  if (!world.run_until([&] { return all(ready); }, seconds{60})) return false;
  for (const WireInfo& wire : world.wires()) first_data_wire_ = std::max(first_data_wire_, wire.number + 1);
  for (const auto& rank : ranks_) {
    rank->hold = false;
    rank->loop.wake();
  }
  return true;
}

bool Crew::all(const std::function<bool(const CrewRank&)>& holds, int except) const {
  return std::all_of(ranks_.begin(), ranks_.end(), [&](const auto& rank) { return rank->rank == except || holds(*rank); });
}

bool Crew::run_until_over(Nanoseconds limit, int except) {
  return world.run_until([&] { return all([](const CrewRank& rank) { return rank.over(); }, except); }, limit);
}

std::vector<std::uint64_t> Crew::wires(int a, int b, bool data) const {
  std::vector<std::uint64_t> numbers;
  for (const WireInfo& wire : world.wires()) {
    const bool between = std::minmax(wire.process[0], wire.process[1]) == std::minmax(a, b);
    if (between && (wire.number >= first_data_wire_) == data) numbers.push_back(wire.number);
  }
  return numbers;
}

std::vector<std::uint64_t> Crew::data_wires(int a, int b) const { return wires(a, b, true); }
std::vector<std::uint64_t> Crew::control_wires(int a, int b) const { return wires(a, b, false); }

std::string Crew::report() const {
  std::string text = world.replay_line();
  for (const auto& rank : ranks_) {
    text += "\n  rank " + std::to_string(rank->rank) + ": " + std::to_string(rank->completed) + " completed, " +
            std::to_string(rank->wrong) + " wrong, " + (rank->verdict ? rank->verdict->to_string() : "no failure");
    if (rank->shrunk)
      text += "\n    shrink: " + rank->shrunk->to_string() + ", rank " + (rank->new_place.empty() ? "none" : fmt::format("{} of {}", rank->new_place[0], rank->new_place[1])) +
              fmt::format(", {} carried on{}", rank->carried, rank->second_verdict ? ", then " + rank->second_verdict->to_string() : "");
    if (rank->wrong) text += "\n    first wrong: " + rank->first_wrong;
    for (const std::string& later : rank->later_verdicts) text += "\n    and " + later;
  }
  return text + "\n";
}

}  // namespace tutti::sim
