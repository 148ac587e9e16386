#include "comm/engine.h"

#include <fmt/format.h>

#include <algorithm>
#include <system_error>

#include "comm/budget.h"
#include "comm/member.h"
#include "comm/relay.h"
#include "core/check.h"
#include "core/log.h"
#include "transport/rdma/rdma_transport.h"
#include "transport/shm/kernel_read.h"
#include "transport/shm/shm_transport.h"
#include "transport/tcp/tcp_transport.h"

namespace tutti::comm {

using transport::SegmentHeader;

namespace {

constexpr std::chrono::seconds kDrainLimit{1};
constexpr std::chrono::milliseconds kVerdictWait{300};
constexpr std::chrono::milliseconds kKernelEnds{1000};  // a kernel that nobody has to wait for any more
constexpr std::chrono::milliseconds kLastWords{100};   // of a peer whose data connection has ended: its control connection ends, too
constexpr std::size_t kMaxIdleExecutions = 64;   // kept with their memory for the next operations

transport::TcpOptions tcp_options(const Settings& settings) {
  transport::TcpOptions options;
  options.landing_limit = Budget(settings.memory_limit).granted;
  options.eager_limit = Budget(settings.memory_limit).eager;
  options.crc = settings.crc;
  options.resumable = true;
  if (settings.segment) options.segment_bytes = settings.segment;
  return options;
}

}  // namespace

Engine::Engine(EngineSetup setup)
    : settings_(std::move(setup.settings)), world_rank_(setup.world_rank), world_size_(setup.world_size), numa_(setup.numa),
      oversubscribed_(setup.oversubscribed), threaded_(setup.threaded), loop_(std::move(setup.loop)),
      directory_(std::move(setup.directory)),
      journal_(*loop_, std::move(setup.recorder), setup.threaded && record::has_even_counter()), peers_(std::size_t(setup.world_size)) {
  shm_ = std::make_unique<transport::shm::ShmTransport>(*loop_, *this, transport::shm::ShmOptions{settings_.segment, Budget(settings_.memory_limit).slots, settings_.check, settings_.cma != "0"});
  if (settings_.cma == "1") transport::shm::let_be_read();
  tcp_ = std::make_unique<transport::TcpTransport>(*loop_, *this, tcp_options(settings_));
  transports_ = {shm_.get(), tcp_.get()};
  if (!settings_.metrics.empty()) {
    metrics_ = std::make_unique<Metrics>(*loop_, settings_.metrics, world_rank_, setup.local_rank, [this] { return metrics_text(); });
    if (const Status& status = metrics_->status(); !status.ok()) log::write(log::Level::warning, status.text());
  }
  inquiry_ = std::make_unique<Inquiry>(*loop_, environment("TUTTI_REPORT_SIGNAL"), [this] { asked(); });
  if (!directory_) return;
  directory_->on_incoming([this](int peer, Purpose purpose, std::vector<std::unique_ptr<Stream>> streams) {
    Peer& p = peers_[std::size_t(peer)];
    if (p.state == Peer::lost) return;
    if (purpose == Purpose::tcp ? tcp_->connected(peer) : purpose == Purpose::rdma && by_rdma(peer)) return resume(peer, false, std::move(streams));
    p.state = Peer::connecting;
    streams_ready(peer, purpose, false, std::move(streams));
  });
  directory_->on_gone([this](int peer, const Status& why) {
    on_lost(peer, why);
    blame(peer);
  });
  directory_->on_word([this](int from, const Word& word) { heard(from, word); });
}

Engine::~Engine() { shut_down("the communicator was dropped"); }

// A world of one rank has no use for the thread, unless it has streams.
Status Engine::begin() { return world_size_ == 1 ? Status() : start_thread(); }

Status Engine::start_thread() {
  if (!threaded_ || thread_.joinable() || stopping_) return {};
  try {
    thread_ = std::thread([this] { progress_loop(); });
  } catch (const std::system_error& error) {
    return Status(Code::out_of_resources, fmt::format("{} cannot start its progress thread: {}; look at ulimit -u, and at pids.max and the memory limit of its cgroup",
                                                      describe(world_rank_), error.code().message()));
  }
  return {};
}

void Engine::shut_down(const std::string& reason) {
  {
    Lock held = lock();
    if (stopping_) return;
    stopping_ = true;
    const auto pending = pending_;
    for (const auto& operation : pending) complete(*operation, Status(Code::aborted, reason));
    drain(held);
    turn_.notify_all();
    loop_->wake();
    bell_.ring();
  }
  if (thread_.joinable()) {
    if (thread_.get_id() == std::this_thread::get_id()) thread_.detach();
    else thread_.join();
  }
  run_callbacks();
  Lock held = lock();
  for (const auto& relay : relays_) relay->detach();
  relays_.clear();
  for (Parked& p : parked_) p.piece.release();
  parked_.clear();
  members_.clear();
  idle_executions_.clear();
  idle_bytes_ = 0;
  transports_.clear();
  wires_.clear();
  shm_.reset();
  tcp_.reset();
  rdma_.reset();
  metrics_.reset();
  inquiry_.reset();
  answers_.reset();
  directory_.reset();
  journal_.close(!settings_.recorder.empty());
}

// What was sent in operations that are complete here must still reach the others. Bounded: peers may be dead.
void Engine::drain(Lock& held) {
  if (!threaded_) return;
  const TimePoint end = loop_->now() + kDrainLimit;
  while (!std::all_of(transports_.begin(), transports_.end(), [](auto* t) { return t->drained(); }) && loop_->now() < end) {
    if (progress()) continue;
    held.unlock();
    std::this_thread::yield();
    held = lock();
  }
}

Engine::Lock Engine::lock() {
  Lock held(mutex_, std::try_to_lock);
  if (held) return held;
  contenders_.fetch_add(1, std::memory_order_relaxed);
  held.lock();
  contenders_.fetch_sub(1, std::memory_order_relaxed);
  return held;
}

// 31 bits: who gives it, and which of the last kSplits. One in use is not given again.
std::uint32_t Engine::allot_communicator() {
  constexpr std::uint32_t kSplits = 1 << 15;
  std::uint32_t id;
  do id = std::uint32_t(world_rank_) << 15 | (++splits_ % kSplits);
  while (members_.count(id) || id == kWorldCommunicator || id == kProbeCommunicator);
  return id;
}

void Engine::add_member(std::shared_ptr<Member> member) {
  journal_.joined(member->id(), member->rank_count(), member->rank());
  members_[member->id()] = std::move(member);
}

void Engine::remove_member(std::uint32_t communicator) {
  std::erase_if(relays_, [&](const auto& relay) {
    if (relay->member().id() != communicator) return false;
    relay->detach();
    return true;
  });
  members_.erase(communicator);
}

Status Engine::add_relay(std::shared_ptr<Relay> relay) {
  if (Status started = start_thread(); !started.ok()) return started;
  relays_.push_back(std::move(relay));
  return {};
}

void Engine::alarm() {
  alarmed_ = true;
  bell_.ring();
  loop_->wake();
}

std::unique_ptr<Execution> Engine::take_execution() {
  if (idle_executions_.empty()) return std::make_unique<Execution>();
  auto execution = std::move(idle_executions_.back());
  idle_executions_.pop_back();
  idle_bytes_ -= execution->memory_bytes();
  return execution;
}

// For the next operation, with its memory as far as the limit allows.
void Engine::keep(std::unique_ptr<Execution> execution) {
  const std::size_t bytes = execution->memory_bytes();
  if (idle_executions_.size() >= kMaxIdleExecutions || idle_bytes_ + bytes > Budget(settings_.memory_limit).scratch) return;
  idle_bytes_ += bytes;
  idle_executions_.push_back(std::move(execution));
}

void Engine::track(const std::shared_ptr<Operation>& operation) {
  starts_.store(starts_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  pending_.push_back(operation);
}

void Engine::start(const std::shared_ptr<Operation>& operation) {
  Operation& op = *operation;
  track(operation);
  bool lost = false;
  for (int peer : op.execution->program()->peers) {
    const int world = op.member().world_rank(peer);
    lost |= peers_[std::size_t(world)].state == Peer::lost;
    if (peers_[std::size_t(world)].state == Peer::none) connect(world);
    if (op.complete()) return;
  }
  op.execution->start(op.member().wires());
  journal_.started(op, expects_wait_.load(std::memory_order_relaxed));
  deliver_parked(op);      // also to one that has nothing to receive: it shall hear of what it did not expect
  if (!op.complete() && op.execution->finished()) complete(op, {});
  if (!lost || op.complete()) return;
  // Who has left may have sent before all that it had to.
  const auto ranks = op.execution->program()->peers;      // goes with the operation's end
  for (const int rank : ranks) {
    if (op.complete()) return;
    const Peer& p = peers_[std::size_t(op.member().world_rank(rank))];
    if (p.state == Peer::lost && !p.reminder && op.execution->needs(rank))
      fail(op.member(), Status(p.lost_why.code(), p.lost_why.text(), rank));   // it runs on until the verdict is there
  }
}

void Engine::start_in_kernel(const std::shared_ptr<Operation>& operation) {
  track(operation);
  journal_.started(*operation, false);
  Member& member = operation->member();
  for (int rank = 0; rank < member.rank_count(); ++rank) {
    const Peer& p = peers_[std::size_t(member.world_rank(rank))];
    if (p.state == Peer::lost && !p.reminder) fail(member, Status(p.lost_why.code(), p.lost_why.text(), rank));
  }
  deliver_parked(*operation);
}

void Engine::deliver_parked(Operation& operation) {
  for (std::size_t i = 0; i < parked_.size() && !operation.complete();) {
    Member* member = nullptr;
    if (find(parked_[i].peer, parked_[i].piece.header(), &member) != &operation) {
      ++i;
      continue;
    }
    Parked parked = std::move(parked_[i]);
    parked_.erase(parked_.begin() + std::ptrdiff_t(i));
    on_segment(parked.peer, parked.piece.header(), parked.piece.data(), parked.piece.take_lease());
  }
}

void Engine::complete(Operation& operation, Status status) {
  if (operation.complete()) return;
  if (status.ok() && operation.after) operation.after();
  operation.after = nullptr;
  if (operation.check) {
    if (status.ok() && !operation.check->agreed()) return check_result(operation);
    operation.check->drop();
  }
  journal_.ended(operation, status);
  ++(status.ok() ? totals_.completed : totals_.failed);
  if (operation.execution) totals_.moved += operation.execution->moved_bytes();
  note_service(operation);
  if (operation.execution) {
    operation.execution->release();
    keep(std::move(operation.execution));
  }
  operation.staging = {};
  operation.member().forget(operation);
  std::shared_ptr<Operation> keep;
  for (auto& p : pending_) {
    if (p.get() != &operation) continue;
    keep = std::move(p);
    p = std::move(pending_.back());
    pending_.pop_back();
    break;
  }
  for (auto& callback : operation.finish(status)) callbacks_.emplace_back(std::move(callback), operation.status());
  if (queued_) turn_.notify_all();
  if (sleeping_) loop_->wake();
}

// Its own traffic is over: the exchange of checksums takes its place.
void Engine::check_result(Operation& operation) {
  if (operation.check->begun()) return;
  std::weak_ptr<Operation> waiting;
  for (const auto& p : pending_)
    if (p.get() == &operation) waiting = p;
  const auto exchange = operation.check->begin();
  exchange->after = [this, waiting] {
    const auto checked = waiting.lock();
    if (!checked || checked->complete()) return;
    const Status verdict = checked->check->judge(*checked, *this);
    if (verdict.ok()) complete(*checked, {});
    else fail(checked->member(), verdict);
  };
  operation.member().forget(operation);
  start(exchange);
}

// For the flight recorder: how the links to here did, where much was moved.
void Engine::note_service(const Operation& operation) {
  if (!operation.execution || operation.execution->moved_bytes() < Journal::kLarge) return;
  for (const int peer : operation.execution->program()->peers) {
    const int world = operation.member().world_rank(peer);
    if (wire(world).transport != tcp_.get()) continue;
    const auto service = tcp_->service(world);
    journal_.served(world, service.bytes, service.nanoseconds);
  }
}

bool Engine::add_callback(Operation& operation, std::function<void(const Status&)>& callback) {
  Lock held = lock();
  if (!operation.add_callback(callback)) return false;
  nudge();
  return true;
}

void Engine::run_callbacks() {
  while (true) {
    decltype(callbacks_) ready;
    {
      Lock held = lock();
      ready.swap(callbacks_);
    }
    if (ready.empty()) return;
    for (auto& [callback, status] : ready) callback(status);
  }
}

bool Engine::decides(const Member& member) const {
  for (int r = 0; r < member.rank(); ++r)
    if (!directory_->gone(member.world_rank(r))) return false;
  return true;
}

void Engine::spread_verdict(Member& member, const Status& verdict) {
  if (!directory_) return;
  directory_->say({.kind = Word::Kind::verdict, .communicator = member.id(), .status = verdict});
}

void Engine::fail(Member& member, const Status& cause) {
  if (!member.broken().ok() || member.suspicion().timer) return;
  if (directory_ && !decides(member)) directory_->say({.kind = Word::Kind::cause, .communicator = member.id(), .status = cause});
  suspect(member, cause, world_rank_);
}

// The rank that decides takes the first cause that it sees or hears of. The others wait for its word; should it not come (that
// rank may be the one that stands still), they take the cause of the lowest rank that has seen one: all have heard the same.
void Engine::suspect(Member& member, const Status& cause, int origin) {
  if (!member.broken().ok()) return;
  if (!directory_ || decides(member)) {
    spread_verdict(member, cause);
    return settle(member, cause);
  }
  Member::Suspicion& suspicion = member.suspicion();
  if (suspicion.timer && suspicion.origin <= origin) return;
  suspicion.cause = cause;
  suspicion.origin = origin;
  if (suspicion.timer) return;
  suspicion.timer = loop_->at(loop_->now() + kVerdictWait, [this, alive = member.weak_from_this()] {
    const auto still = alive.lock();
    if (!still) return;
    const Status verdict = still->suspicion().cause;   // settling clears it
    settle(*still, verdict);
  });
}

void Engine::heard(int from, const Word& word) {
  note_word_of(from);
  if (word.kind == Word::Kind::dial_me) {
    if (word.about != world_rank_ || from > world_rank_) return;
    Peer& peer = peers_[std::size_t(from)];
    if (peer.state == Peer::up && (peer.wire.transport == tcp_.get() || by_rdma(from))) renew(from);
    else connect(from);
    return;
  }
  const auto it = members_.find(word.communicator);
  if (it == members_.end()) return;
  const auto member = it->second;
  if (member->rank_of(from) < 0) return;     // of a sibling that was split off with this one: it has the same id
  const TimePoint now = loop_->now();
  switch (word.kind) {
    case Word::Kind::cause: return suspect(*member, word.status, from);
    case Word::Kind::verdict: return settle(*member, word.status);
    case Word::Kind::ask:
      if (word.about < 0) member->watch().asked_all(now);
      else member->watch().asked(member->rank_of(word.about), now);
      if (word.about < 0 || word.about == world_rank_) directory_->say({.kind = Word::Kind::report, .communicator = member->id(), .report = report_of(*member)});
      return;
    case Word::Kind::report: return member->watch().heard(member->rank_of(from), word.report, now);
    case Word::Kind::belief: return member->shrinking().hear(member->rank_of(from), word.belief);
    case Word::Kind::hang_draft:
      if (const auto report = HangReport::decode(word.hang)) consider_report(*member, *report, from);
      return;
    case Word::Kind::hang:
      if (const auto report = HangReport::decode(word.hang)) tell(*member, *report);
      return;
    case Word::Kind::dial_me: return;
  }
}

void Engine::settle(Member& member, const Status& verdict) {
  if (!member.broken().ok()) return;
  if (!member.destroyed()) journal_.verdict(member.id(), verdict);
  member.break_with(verdict);
  for (auto* t : transports_) {
    t->abandon(member.id());
    t->abandon(member.id() | kPairBit);
  }
  const auto pending = pending_;
  for (const auto& operation : pending)
    if (&operation->member() == &member && !operation->outlives) complete(*operation, verdict);
  std::erase_if(parked_, [&](Parked& p) {
    if ((p.piece.header().key.communicator & ~kPairBit) != member.id()) return false;
    p.piece.release();
    return true;
  });
}

std::string Engine::describe(int world_rank) const {
  return directory_ ? directory_->describe(world_rank) : fmt::format("rank {}", world_rank);
}

std::size_t Engine::memory_bytes() const {
  std::size_t bytes = idle_bytes_;
  for (const auto& operation : pending_)
    if (operation->execution) bytes += operation->execution->memory_bytes() + operation->staging.capacity();
  for (const auto* t : transports_) bytes += t->memory_bytes();
  for (const auto& relay : relays_) bytes += relay->memory_bytes();
  return bytes + journal_.memory_bytes();
}

std::string Engine::debts() const {
  std::string out = parked_.empty() ? "" : fmt::format("{} segments that nobody has asked for; ", parked_.size());
  for (const auto* t : transports_) out += t->debts();
  return out;
}

std::size_t Engine::memory() {
  Lock held = lock();
  return memory_bytes();
}

// --- what arrives ---

Operation* Engine::find(int peer, const SegmentHeader& header, Member** member) const {
  const auto it = members_.find(header.key.communicator & ~kPairBit);
  if (it == members_.end()) return nullptr;
  *member = it->second.get();
  const int rank = (*member)->rank_of(peer);
  return rank < 0 ? nullptr : (*member)->find(rank, header);
}

std::byte* Engine::landing(int peer, const SegmentHeader& header) {
  Member* member = nullptr;
  Operation* operation = find(peer, header, &member);
  if (!operation || !operation->execution || !operation->execution->started() || pack(operation->call) != header.call) return nullptr;
  return operation->execution->landing(member->rank_of(peer), header);
}

void Engine::on_segment(int peer, const SegmentHeader& header, const std::byte* data, transport::Lease lease) {
  ++deliveries_;
  Member* member = nullptr;
  Operation* operation = find(peer, header, &member);
  if (operation && operation->in_kernel) {      // nothing is sent for it: the peer makes another call, or goes another way
    lease.release();
    return disagree(*member, peer, *operation, header.call);
  }
  if (!operation || !operation->execution) {
    const int rank = member ? member->rank_of(peer) : -1;
    const bool ended = rank >= 0 && member->has_ended(header, rank);
    if (!ended && (!member || member->broken().ok())) return void(parked_.push_back({peer, Piece(header, data, lease)}));
    lease.release();
    if (ended) missed(*member, peer, header);
    return;
  }
  if (!operation->execution->started()) return void(parked_.push_back({peer, Piece(header, data, lease)}));
  journal_.arrived(*operation, peer, header);
  const std::uint64_t call = pack(operation->call);
  const std::uint32_t plan = operation->execution->program()->hash & 0xffffu;
  if (call != header.call || plan != (header.plan & 0xffffu)) {
    lease.release();
    return disagree(*member, peer, *operation, header.call);
  }
  if (operation->execution->arrived(member->rank_of(peer), header, data, lease) == Execution::Verdict::unexpected)
    return disagree(*member, peer, *operation, header.call);
  if (operation->execution->finished()) complete(*operation, {});
}

void Engine::disagree(Member& member, int peer, Operation& operation, std::uint64_t call) {
  const Call theirs = unpack(call);
  std::string text = fmt::format("operation {}: {} called {}, {} called {}", operation.sequence, describe(world_rank_),
                                 to_string(operation.call), describe(peer), to_string(theirs));
  if (theirs == operation.call && operation.in_kernel) text += ", but not on a stream of its GPU (all or none, after use_gpu)";
  else if (theirs == operation.call) text += ", but for different sizes of blocks or by another algorithm (compare the TUTTI_ settings)";
  fail(member, Status(Code::mismatch, text, member.rank_of(peer)));
}

// What an operation receives has come before it ends; for one of the right size and call there is nothing else to come.
void Engine::missed(Member& member, int peer, const SegmentHeader& header) {
  const std::uint32_t sequence = header.key.operation;
  if (header.key.communicator & kPairBit) return;   // was refused when its first segment came
  const auto ours = member.earlier(sequence);
  const Status cause(Code::mismatch,
                     fmt::format("operation {}: {} called {} and was to receive nothing more, {} called {} and sent it data", sequence,
                                 describe(world_rank_), ours ? to_string(*ours) : "something else", describe(peer), to_string(unpack(header.call))),
                     member.rank_of(peer));
  fail(member, cause);
}

void Engine::on_sent(int, std::uint64_t token) {
  ++deliveries_;
  for (const auto& operation : pending_) {
    if (operation->token != token >> 32 || !operation->execution) continue;
    operation->execution->sent(std::uint32_t(token));
    if (operation->execution->finished()) complete(*operation, {});
    return;
  }
}

// Which operation's it was is known as far as the header can be believed.
void Engine::on_damaged(int peer, const SegmentHeader& header) {
  const std::string what = fmt::format("what {} sent {} arrived damaged in shared memory (faulty memory, or something that writes where it should not)",
                                       describe(peer), describe(world_rank_));
  Member* member = nullptr;
  Operation* operation = find(peer, header, &member);
  if (!operation || !operation->execution) return on_lost(peer, Status(Code::damaged, what, peer));
  const int rank = member->rank_of(peer), step = operation->execution->step_of(rank, header);
  const auto steps = operation->execution->program()->steps.size();
  fail(*member, Status(Code::damaged,
                       fmt::format("operation {} {}: step {} of {}: {}; bytes {} to {} of a message of {}", operation->sequence, to_string(operation->call),
                                   step + 1, steps, what, header.offset, header.offset + header.bytes, header.message_bytes),
                       rank));
}

void Engine::on_lost(int peer, const Status& why) {
  Peer& p = peers_[std::size_t(peer)];
  if (p.state == Peer::lost) return;
  p.state = Peer::lost;
  if (tcp_ && p.wire.transport == tcp_.get()) tcp_->disconnect(peer);
  if (rdma_ && p.wire.transport == rdma_.get()) rdma_->disconnect(peer);
  p.wire = {};
  p.reminder = nullptr;
  journal_.lost(peer);
  const std::string who = describe(peer);
  const std::string text = why.text().starts_with(who) ? why.text() : fmt::format("{}: {}", who, why.text());
  p.lost_why = Status(why.code(), text, peer);
  for (const auto& [id, member] : members_) member->wire_up(peer, {});
  // What it said last may be on its way over the control plane, and is the cause of its end.
  if (why.code() != Code::peer_lost || !directory_ || directory_->gone(peer)) return blame(peer);
  p.reminder = loop_->at(loop_->now() + kLastWords, [this, peer] { blame(peer); });
}

// A lost peer is the failure of those that need something of it.
void Engine::blame(int peer, bool finally) {
  Peer& p = peers_[std::size_t(peer)];
  p.reminder = nullptr;
  for (const auto& relay : relays_) relay->note_begun();
  const auto members = members_;
  bool may_need = false;
  for (const auto& [id, member] : members) {
    const int rank = member->rank_of(peer);
    if (rank < 0) continue;
    // A peer that ends after its last operation is nobody's failure. Its kernel has ended only after those of the others had begun,
    // and then they end without it.
    bool needed = false;
    for (const auto& operation : pending_) {
      if (&operation->member() != member.get()) continue;
      if (!operation->in_kernel) needed |= operation->execution && operation->execution->needs(rank);
      else if (finally || operation->meets.empty()) needed = true;
      else may_need = true;
    }
    if (needed) fail(*member, Status(p.lost_why.code(), p.lost_why.text(), rank));
  }
  if (may_need) p.reminder = loop_->at(loop_->now() + kKernelEnds, [this, peer] { blame(peer, true); });
}

}  // namespace tutti::comm
