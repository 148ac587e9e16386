#include "tests/sim/crew.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "comm/join.h"
#include "core/check.h"
#include "transport/sim/loop_handle.h"

namespace tutti::sim {

namespace {

constexpr int kMeetingPort = 29500;
constexpr int kMostPasses = 10'000;  // of an engine in one tick: more is a pass that always says it moved something
constexpr Nanoseconds kShortestNap = microseconds{4};
constexpr Nanoseconds kLongestNap = milliseconds{2};
constexpr Nanoseconds kIdleTick = milliseconds{500};

}  // namespace

CrewRank::CrewRank(Crew& crew, int number, SimLoop& process, comm::JoinRequest request, bool newcomer)
    : rank(number), loop(process), crew_(crew), request_(std::move(request)), newcomer_(newcomer) {
  loop.on_tick([this] { tick(); });
}

CrewRank::~CrewRank() {
  loop.on_tick(nullptr);
  survivors_ = {};
  communicator_ = {};
  member_.reset();
  if (!gpu_) return;
  TUTTI_CHECK(gpu_->has_run() && "a stream waits for ever");
  TUTTI_CHECK(gpu_->pinned_bytes() == 0 && "slots that nobody uses any more");
}

bool CrewRank::done() const { return completed == crew_.options.exchanges; }

bool CrewRank::reaches(int other) const {
  if (!member_) return false;
  auto held = member_->engine()->lock();
  return member_->engine()->wire(other).connection != nullptr;
}

std::string CrewRank::debts() const {
  if (!member_) return "";
  auto held = member_->engine()->lock();
  return member_->engine()->debts();
}

void CrewRank::tick() {
  if (!joined) {
    loop.run({});
    join();
  }
  if (!member_) return;
  moved_ = false;
  for (std::uint64_t steps = gpu_ ? crew_.world.dice().below(6) : 0; steps > 0; --steps) moved_ |= gpu_->step();
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
  if (crew_.options.gpus) {
    gpu_ =
        std::make_shared<twin::TwinDevice>(crew_.world.seed() + std::uint64_t(rank), twin::TwinDevice::Drive::by_steps);
    streams_ = {gpu_->make_stream(), gpu_->make_stream(), {}};
    member_->use_device(gpu_);
  }
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
    const auto ended = it++;
    if (gpu_) on_streams_.splice(on_streams_.end(), pending_, ended);
    else pending_.erase(ended);
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
  first_wrong = fmt::format("{}: {}{} {}[{}] {} root {}{}, input {}", pending.index, name_of(x.what),
                            x.ragged ? "_v" : "", name_of(x.type), x.count, name_of(x.op), x.root,
                            x.in_place(rank) ? " in place" : "", pending.share.input_intact() ? "intact" : "changed");
}

void CrewRank::start_next() {
  const CrewOptions& options = crew_.options;
  while (!verdict && !hold && started_ < options.exchanges &&
         static_cast<int>(pending_.size()) < options.most_pending && loop.now() >= next_start_) {
    pending_.push_back({started_, Share(options.agenda(rank, started_), rank), {}});
    ++started_;
    const DeviceStream stream = gpu_ ? streams_[crew_.world.dice().below(streams_.size())] : DeviceStream{};
    pending_.back().work = pending_.back().share.start(communicator_, stream);
    next_start_ = loop.now() + crew_.world.dice().up_to(options.pause) +
                  (rank == options.late_rank ? options.late_by : Nanoseconds{0});
    moved_ = true;
  }
}

// After the verdict: shrinks, and exchanges among those who are left, the same for all by their number.
void CrewRank::carry_on() {
  if (newcomer_ && !second_verdict && !verdict) return regrow();
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
  if (!shrunk->ok()) return;
  if (carried == crew_.options.carry_on) return regrow();
  if (carry(survivors_, std::uint64_t(carried))) ++carried;
}

// As Communicator::grow does: the survivors and the newcomer start up anew. Then the old communicators go.
void CrewRank::regrow() {
  if (regrown == crew_.options.regrow || crew_.invitation().addresses.empty()) return;
  if (!larger_ && newcomer_) {
    if (!joined) return;
    larger_ = true;
    new_place = {communicator_.rank(), communicator_.rank_count()};
  }
  if (!larger_) {
    if (!joining_) {
      request_ = crew_.invitation();
      request_.rank = new_place[0];
      request_.host->pid = 1000 + rank;
      joining_ = comm::join(loop, request_);
      joining_.start();
    }
    loop.run({});
    if (!joining_.done()) return;
    Result<std::unique_ptr<comm::World>> world = joining_.result();
    if (!world) return void(second_verdict = world.status());
    auto member = comm::make_member(std::make_unique<LoopHandle>(loop), std::move(*world), request_.settings, false);
    joining_ = {};
    if (!member) return void(second_verdict = member.status());
    survivors_ = {};
    communicator_ = {};
    shrinking_.reset();
    member_ = *member;
    communicator_ = comm::Member::handle(member_);
    larger_ = moved_ = true;
    new_place = {communicator_.rank(), communicator_.rank_count()};
  }
  if (carry(communicator_, 1000 + std::uint64_t(regrown))) ++regrown;
}

// An exchange among `with`, the same for all by its number, one at a time. True: it has ended well.
bool CrewRank::carry(Communicator& with, std::uint64_t index) {
  if (carrying_.empty()) {
    Dice dice{crew_.world.seed() * 77 + index};
    carrying_.push_back({int(index), Share(any_exchange(dice, new_place[1], 4096), new_place[0]), {}});
    carrying_.back().work = carrying_.back().share.start(with);
    moved_ = true;
  }
  Pending& pending = carrying_.back();
  if (!pending.work.test()) return false;
  moved_ = true;
  const Status status = pending.work.status();
  if (!status.ok()) second_verdict = status;
  else wrong += !pending.share.right();
  carrying_.clear();
  return status.ok();
}

bool CrewRank::carries() const {
  if (second_verdict || crew_.options.carry_on == 0) return false;
  const bool regrows = regrown < crew_.options.regrow && !crew_.invitation().addresses.empty();
  if (newcomer_) return regrows;
  return verdict && (!shrunk || (shrunk->ok() && (carried < crew_.options.carry_on || regrows)));
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
  const bool waits = !pending_.empty() || (!over() && !hold) || carries();
  if (!waits) {                              // as its progress thread does
    alarm_ = loop.at(loop.now() + kIdleTick, [] {});
    return;
  }
  nap_ = moved_ ? kShortestNap : std::min<Nanoseconds>(std::max(nap_, kShortestNap) * 2, kLongestNap);
  alarm_ = loop.at(loop.now() + nap_, [] {});
}

Crew::Crew(std::uint64_t seed, const CrewOptions& wanted) : options(wanted), world(seed, wanted.world) {
  for (int h = 0; h < options.hosts; ++h) world.add_host();
  neighbours_ = world.dice().chance(0.5);
  for (int r = 0; r < options.ranks; ++r) {
    ranks_.push_back(std::make_unique<CrewRank>(*this, r, world.add_process(host_of(r)), request_of(r)));
    ranks_.back()->hold = true;
  }
}

int Crew::host_of(int rank) const { return neighbours_ ? rank * options.hosts / options.ranks : rank % options.hosts; }

comm::JoinRequest Crew::request_of(int rank) const {
  const int host = host_of(rank);
  comm::JoinRequest request;
  request.rank = rank;
  request.rank_count = options.ranks;
  request.addresses = {"host0:" + std::to_string(kMeetingPort)};
  request.key = comm::make_job_key("the job");
  request.settings = options.settings;
  request.host = HostFacts{
      .name = "host" + std::to_string(host), .identity = 100 + std::uint64_t(host), .pid = 1000 + rank, .cores = 64};
  return request;
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
  return std::all_of(ranks_.begin(), ranks_.end(),
                     [&](const auto& rank) { return rank->rank == except || holds(*rank); });
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

CrewRank& Crew::replace(int victim) {
  invitation_ = request_of(victim);
  invitation_.rank = options.ranks - 1;
  invitation_.addresses = {"host" + std::to_string(host_of(victim == 0 ? 1 : 0)) + ":" +
                           std::to_string(kMeetingPort + 1)};
  invitation_.host->pid = 2000;
  newcomer_ = std::make_unique<CrewRank>(*this, options.ranks, world.add_process(host_of(victim)), invitation_, true);
  newcomer_->hold = true;
  return *newcomer_;
}

std::string Crew::debts(int except) {
  std::string all;
  const auto settled = [&] {
    all.clear();
    for (const auto& rank : ranks_)
      if (const std::string own = rank->rank == except ? "" : rank->debts(); !own.empty())
        all += "rank " + std::to_string(rank->rank) + ": " + own + "\n";
    return all.empty();
  };
  world.run_until(settled, seconds{5});
  return all;
}

std::string Crew::report() const {
  std::string text = world.replay_line();
  for (const auto& rank : ranks_) {
    text += "\n  rank " + std::to_string(rank->rank) + ": " + std::to_string(rank->completed) + " completed, " +
            std::to_string(rank->wrong) + " wrong, " + (rank->verdict ? rank->verdict->to_string() : "no failure");
    if (rank->shrunk)
      text += "\n    shrink: " + rank->shrunk->to_string() + ", rank " +
              (rank->new_place.empty() ? "none" : fmt::format("{} of {}", rank->new_place[0], rank->new_place[1])) +
              fmt::format(", {} carried on, {} after regrowth{}", rank->carried, rank->regrown,
                          rank->second_verdict ? ", then " + rank->second_verdict->to_string() : "");
    if (rank->wrong) text += "\n    first wrong: " + rank->first_wrong;
    for (const std::string& later : rank->later_verdicts) text += "\n    and " + later;
  }
  return text + "\n";
}

}  // namespace tutti::sim
