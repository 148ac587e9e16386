#include "comm/member.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "core/check.h"
#include "core/no_memory.h"
#include "kernels/kernels.h"

namespace tutti::comm {

using transport::SegmentHeader;

namespace {

constexpr std::size_t kMaxPlans = 4096;   // remembered; sizes that vary without end start over

}  // namespace

Member::Member(std::shared_ptr<Engine> engine, std::uint32_t id, std::vector<int> world_ranks, int rank,
               std::vector<std::vector<int>> levels, Planner planner)
    : engine_(std::move(engine)), id_(id), world_ranks_(std::move(world_ranks)), rank_(rank), levels_(std::move(levels)),
      wires_(world_ranks_.size()), planner_(std::move(planner)), pairs_(world_ranks_.size()) {
  const int largest = *std::max_element(world_ranks_.begin(), world_ranks_.end());
  rank_of_world_.assign(std::size_t(largest) + 1, -1);
  for (std::size_t r = 0; r < world_ranks_.size(); ++r) {
    rank_of_world_[std::size_t(world_ranks_[r])] = int(r);
    wires_[r] = engine_->wire(world_ranks_[r]);
  }
}

int Member::rank_of(int world_rank) const {
  return std::size_t(world_rank) < rank_of_world_.size() ? rank_of_world_[std::size_t(world_rank)] : -1;
}

int Member::local_rank() const {
  if (levels_.empty()) return rank_;
  const auto& group = levels_[0];
  return int(std::count(group.begin(), group.begin() + rank_, group[std::size_t(rank_)]));
}

int Member::local_rank_count() const {
  if (levels_.empty()) return rank_count();
  return int(std::count(levels_[0].begin(), levels_[0].end(), levels_[0][std::size_t(rank_)]));
}

void Member::wire_up(int world_rank, const Wire& wire) {
  if (const int rank = rank_of(world_rank); rank >= 0) wires_[std::size_t(rank)] = wire;
}

Operation* Member::find(int peer, const SegmentHeader& header) {
  if (header.key.communicator & kPairBit) {
    for (const auto& operation : pairs_[std::size_t(peer)].receiving)
      if (operation->sequence == header.key.operation) return operation.get();
    return nullptr;
  }
  const std::uint32_t at = header.key.operation - first_sequence_;
  return at < window_.size() && window_[at] != held_ ? window_[at].get() : nullptr;
}

bool Member::has_ended(const SegmentHeader& header, int peer) const {
  const std::uint32_t number = header.key.operation;
  if (!(header.key.communicator & kPairBit)) return std::int32_t(number - next_sequence_) < 0 && !is_held(number);
  const Pair& pair = pairs_[std::size_t(peer)];
  return std::int32_t(number - pair.receives) < 0 && std::find(pair.held.begin(), pair.held.end(), number) == pair.held.end();
}

std::optional<Call> Member::earlier(std::uint32_t sequence) const {
  if (next_sequence_ - sequence > calls_.size()) return std::nullopt;
  return unpack(calls_[sequence % calls_.size()]);
}

void Member::forget(Operation& operation) {
  for (Pair& pair : pairs_) {
    if (operation.call.collective != Collective::send) break;
    std::erase_if(pair.receiving, [&](const auto& o) { return o.get() == &operation; });
    if (pair.sending.empty() || pair.sending.front().get() != &operation) {
      std::erase_if(pair.sending, [&](const auto& o) { return o.get() == &operation; });
      continue;
    }
    pair.sending.pop_front();
    if (!pair.sending.empty() && pair.sending.front()->execution) pair.sending.front()->execution->set_oldest();
  }
  const std::uint32_t at = operation.sequence - first_sequence_;
  if (at >= window_.size() || window_[at].get() != &operation) return;
  window_[at].reset();
  while (!window_.empty() && !window_.front()) {
    window_.pop_front();
    ++first_sequence_;
  }
  if (!window_.empty() && window_.front()->execution) window_.front()->execution->set_oldest();
}

std::shared_ptr<Operation> Member::make_operation(const Call& call) {
  auto operation = std::make_shared<Operation>(engine_, shared_from_this());
  operation->call = call;
  operation->token = engine_->next_token();
  return operation;
}

// --- plans and programs ---

std::shared_ptr<const Program> Member::program(const std::string& algorithm, const algorithms::Request& request) {
  auto& program = programs_[{algorithm, request.collective, request.root, request.in_place}];
  if (!program) {
    const auto* generator = algorithms::find_generator(algorithm);
    Program compiled = compile(request, rank_, algorithm, generator->generate(request, rank_));
    compiled.sends_partials = generator->sends_partials(request);   // of all ranks: both ends of a message agree on its width
    program = std::make_shared<Program>(std::move(compiled));
  }
  return program;
}

// One message; the two ends name the same Call (Collective::send), so that fingerprints compare.
std::shared_ptr<const Program> Member::pair_program(Collective what, int peer) {
  auto& program = programs_[{std::string(name_of(what)), what, peer, false}];
  if (program) return program;
  algorithms::Request request;
  request.collective = what;
  request.rank_count = rank_count();
  algorithms::Step step;
  step.kind = what == Collective::send ? algorithms::StepKind::send : algorithms::StepKind::recv;
  (what == Collective::send ? step.source : step.target) = {what == Collective::send ? algorithms::Space::input : algorithms::Space::output, 0, 1};
  step.peers = {peer};
  algorithms::Schedule schedule;
  schedule.steps = {step};
  Program compiled = compile(request, rank_, std::string(name_of(what)), std::move(schedule));
  compiled.hash = 0;
  program = std::make_shared<Program>(std::move(compiled));
  return program;
}

algorithms::Request Member::request_of(const Prepared& call) const {
  const Collective what = call.call.collective;
  const bool rooted = what == Collective::broadcast || what == Collective::reduce || what == Collective::gather || what == Collective::scatter;
  return {what, rank_count(), rooted ? call.call.root : 0, call.in_place, levels_, {}, engine_->settings().channels};
}

Result<std::shared_ptr<const Program>> Member::plan(const Prepared& call) {
  const algorithms::Request request = request_of(call);
  const PlanKey key{call.call.collective, call.bytes, request.root, call.in_place, call.uniform, call.contiguous};
  if (const auto it = plans_.find(key); it != plans_.end()) return it->second;
  Question question;
  question.request = request;
  question.bytes = call.bytes;
  question.uniform = call.uniform;
  auto plans = planner_.plans(question);
  if (!plans) return plans.status();
  for (const Plan& candidate : *plans) {
    auto compiled = program(std::string(candidate.generator->name()), question.request);
    if (!call.contiguous && !compiled->single_blocks) continue;
    if (plans_.size() >= kMaxPlans) plans_.clear();
    plans_[key] = compiled;
    return compiled;
  }
  return Status(Code::unsupported, fmt::format("{}: no algorithm that is allowed takes blocks with gaps between them", name_of(call.call.collective)));
}

void Member::set_prices(Prices prices) {
  auto held = engine_->lock();
  planner_ = planner_.at(std::move(prices));
  plans_.clear();
  briefs_ = {};
}

// A call as it would be, without buffers.
Result<Prepared> Member::imagine(Collective what, std::uint64_t count, DataType type, ReduceOp op) const {
  static std::byte somewhere[2];
  void *in = &somewhere[0], *out = &somewhere[0];
  const Rank self{rank_, rank_count()};
  switch (what) {
    case Collective::all_reduce: return prepare(AllReduce{in, out, count, type, op}, self);
    case Collective::reduce: return prepare(Reduce{in, out, count, type, op}, self);
    case Collective::broadcast: return prepare(Broadcast{in, out, count, type}, self);
    case Collective::all_to_all: return prepare(AllToAll{in, out, count, type}, self);
    case Collective::reduce_scatter: return prepare(ReduceScatter{in, static_cast<std::byte*>(in) + count * size_of(type) * std::size_t(rank_), count, type, op}, self);
    case Collective::scatter: return prepare(Scatter{in, static_cast<std::byte*>(in) + count * size_of(type) * std::size_t(rank_), count, type}, self);
    case Collective::all_gather: return prepare(AllGather{static_cast<std::byte*>(out) + count * size_of(type) * std::size_t(rank_), out, count, type}, self);
    case Collective::gather: return prepare(Gather{static_cast<std::byte*>(out) + count * size_of(type) * std::size_t(rank_), out, count, type}, self);
    default: return Status(Code::invalid_argument, fmt::format("{} has no choice of algorithms", name_of(what)));
  }
}

Result<Choice> Member::choose(Collective what, std::uint64_t count, DataType type, ReduceOp op) {
  if (int(what) >= kCollectiveCount) return Status(Code::invalid_argument, fmt::format("collective is {}, wanted a Collective", int(what)));
  if (int(type) >= kDataTypeCount) return Status(Code::invalid_argument, fmt::format("type is {}, wanted a DataType", int(type)));
  auto call = imagine(what, count, type, op);
  if (!call) return call.status();
  if (uses_peers() && call->bytes > 0)
    if (const GpuChoice kernel = gpu_choice(*call); kernel.way != GpuWay::staged)
      return Choice{kernel.way == GpuWay::two_shot ? "two-shot" : "one-shot", "gpu", kernel.seconds};
  auto held = engine_->lock();
  const auto straight = straight_program(*call);
  const bool adds = straight_reduction(*call).exchange != nullptr;
  const auto compiled = straight ? Result<std::shared_ptr<const Program>>(straight) : plan(*call);
  if (!compiled) return compiled.status();
  Choice choice{(*compiled)->algorithm, ""};
  std::vector<std::string> names;
  for (int peer : (*compiled)->peers) {
    if (const Wire& wire = wires_[std::size_t(peer)]; wire.transport) {
      names.push_back(wire.transport->name());
      continue;
    }
    // Not connected yet: what will be tried first.
    const bool here = levels_.empty() || levels_[0][std::size_t(peer)] == levels_[0][std::size_t(rank_)];
    const std::string& allowed = engine_->settings().transport;
    names.push_back(allowed == "shm" || (allowed == "auto" && here) ? "shm" : name_of(engine_->over_network()));
  }
  std::sort(names.begin(), names.end());
  names.erase(std::unique(names.begin(), names.end()), names.end());
  for (const auto& name : names) choice.transport += (choice.transport.empty() ? "" : "+") + name;
  if ((*compiled)->peers.empty()) choice.transport = "self";
  if (straight || adds) choice.transport = "gpu+rdma";
  choice.seconds = planner_.seconds(planner_.card(*algorithms::find_generator(choice.algorithm), (*compiled)->request), call->bytes);
  if (adds) choice.algorithm = "two-shot";
  return choice;
}

Status Member::status() {
  auto held = engine_->lock();
  return destroyed_ ? Status(Code::invalid_state, "the communicator was destroyed") : broken_;
}

// --- starting ---

// Whether partial sums must travel in f32: where rounding them would change the canonical result, or could overflow.
bool Member::needs_wide(const Binding& b, const Program& program) const {
  if (!is_narrow_float(b.type) || !algorithms::is_reduction(program.request.collective) || !program.sends_partials) return false;
  const bool adds = b.op == ReduceOp::avg || b.op == ReduceOp::sum || b.op == ReduceOp::premul_sum;
  return engine_->settings().order == "canonical" || (adds && b.type != DataType::bf16);
}

// Brings premul_sum and wide accumulation down to a plain sum of a staged copy of the input. The result is converted at the end.
void Member::stage(Operation& operation, Prepared& call, bool wide) const {
  Binding& b = call.binding;
  const bool scatters = call.call.collective == Collective::reduce_scatter;
  const bool scaled = call.call.op == ReduceOp::premul_sum;
  const std::uint64_t produced = scatters ? b.in.count(std::uint64_t(rank_)) : b.vector;
  std::uint64_t elements = b.vector;
  for (int i = 0; scatters && i < rank_count(); ++i)
    elements = std::max(elements, b.in.offset(std::uint64_t(i)) + b.in.count(std::uint64_t(i)));
  const DataType type = b.type, work = wide ? DataType::f32 : type;
  grow(operation.staging, (elements + (wide ? produced : 0)) * size_of(work), "a copy of the input and partial sums");
  std::byte* copy = operation.staging.data();
  if (wide) kernels::cast(work, copy, type, b.input, elements);
  if (scaled) kernels::scale(work, copy, wide ? copy : b.input, elements, call.factor);
  b.input = copy;
  if (!wide) return;
  std::byte* result = copy + elements * size_of(work);
  std::byte* output = b.output;
  b.type = work;
  b.output = result;
  const bool writes = call.call.collective != Collective::reduce || rank_ == call.call.root;
  if (writes) operation.after = [=] { kernels::cast(type, output, work, result, produced); };
}

void Member::begin(const std::shared_ptr<Operation>& operation) {
  engine_->start(operation);
  engine_->nudge();
}

Work Member::refuse(const Status& why) {
  auto held = engine_->lock();
  return refuse(why, held);
}

Work Member::refuse(const Status& why, Engine::Lock& held) {
  for (Group& group : groups_)
    if (group.owner == std::this_thread::get_id() && group.refused.ok()) group.refused = why;
  held.unlock();
  return Work(why);
}

// Starts it, or keeps it for the group that this thread has open.
Work Member::submit(const std::shared_ptr<Operation>& operation, Engine::Lock& held) {
  for (Group& group : groups_) {
    if (group.owner != std::this_thread::get_id()) continue;
    group.operations.push_back(operation);
    return Work(operation);
  }
  begin(operation);
  held.unlock();
  return Work(operation);
}

// An operation that was numbered, and could not be bound. The others wait for it: that it fails is everybody's verdict.
Work Member::starve(std::shared_ptr<Operation> operation, const NoMemory& why, Engine::Lock& held) {
  operation->execution.reset();
  const Status cause(Code::out_of_resources,
                     fmt::format("operation {} {}: {} has no memory for {} bytes ({}); look at ulimit -v and at the memory limit of its cgroup, or reduce in smaller pieces",
                                 operation->sequence, to_string(operation->call), engine_->describe(engine_->world_rank()), why.bytes, why.what_for),
                     rank_);
  for (Group& group : groups_)
    if (group.owner == std::this_thread::get_id() && group.refused.ok()) group.refused = cause;
  engine_->track(operation);
  engine_->fail(*this, cause);
  engine_->nudge();
  held.unlock();
  engine_->run_callbacks();
  return Work(operation);
}

Work Member::start(Prepared&& call) {
  auto held = engine_->lock();
  if (destroyed_) return refuse(Status(Code::invalid_state, "the communicator was destroyed"), held);
  if (!broken_.ok()) return refuse(broken_, held);
  const bool checked = engine_->settings().check && rank_count() > 1 && !call.barrier && ResultCheck::applies(call.call.collective);
  const auto kept = checked ? std::optional(call) : std::nullopt;
  try {
    std::uint32_t record = 0;
    Brief* const small = checked || !groups_.empty() || !window_.empty() ? nullptr : brief(call);
    if (small) {
      address(call, *small->program(), next_sequence_);
      if (engine_->over_at_once(*this, *small, call.binding, record)) {
        ++next_sequence_;
        return Work();
      }
    }
    auto operation = bind(call);
    if (!operation) return refuse(operation.status(), held);
    if (checked) (*operation)->check = make_check(*kept, **operation);
    if (record) (*operation)->record = record;
    for (std::uint32_t i = 0; small && i < small->program()->steps.size(); ++i) (*operation)->execution->sent_before(i, small->sent_to(i));
    return submit(*operation, held);
  } catch (const NoMemory& why) {
    return starve(window_.back(), why, held);
  }
}

// Null where even right results may differ in their last bits.
std::unique_ptr<ResultCheck> Member::make_check(const Prepared& call, const Operation& of) {
  const Program& by = *of.execution->program();
  if (!algorithms::find_generator(by.algorithm)->same_bits(by.request)) return nullptr;
  auto check = std::make_unique<ResultCheck>(call, rank_count());
  auto exchange = prepare(check->exchange_call(), {rank_, rank_count()});
  if (!exchange) return nullptr;
  auto operation = bind(*exchange);
  if (!operation) return nullptr;
  check->exchange_by(*operation);
  return check;
}

// As it is known to the peers.
void Member::address(Prepared& call, const Program& program, std::uint32_t sequence) {
  if (call.call.op == ReduceOp::avg) call.binding.divide_by = std::uint32_t(rank_count());
  if (algorithms::is_reduction(call.call.collective) && call.call.op != ReduceOp::prod && call.call.op != ReduceOp::min && call.call.op != ReduceOp::max)
    call.binding.op = ReduceOp::sum;
  call.binding.header.key = {id_, sequence, 0};
  call.binding.header.call = calls_[sequence % calls_.size()] = pack(named(call));
  call.binding.header.plan = program.hash;
  call.binding.segment_limit = engine_->settings().segment;
  call.binding.lending = lending_of(program, engine_->settings(), planner_.prices());
}

Brief* Member::brief(const Prepared& call) {
  const bool blocks = !call.binding.in.counts.empty() || !call.binding.out.counts.empty();     // their sizes are not in the packed call
  if (blocks || !call.uniform || !call.contiguous || rank_count() > int(kernels::kMaxInputs) || call.bytes > Brief::kMostBytes * std::uint64_t(rank_count())) return nullptr;
  const std::uint64_t packed = pack(named(call));
  BriefShape& known = briefs_[(packed * 0x9e3779b97f4a7c15u) >> 60];
  if (known.call == packed && known.in_place == call.in_place) return known.brief.get();
  known = {packed, call.in_place, nullptr};
  const auto compiled = plan(call);
  if (!compiled || needs_wide(call.binding, **compiled) || call.call.op == ReduceOp::premul_sum) return nullptr;
  Binding shape = call.binding;
  shape.segment_limit = engine_->settings().segment;
  known.brief = Brief::of(*compiled, shape);
  return known.brief.get();
}

Result<std::shared_ptr<Operation>> Member::bind(Prepared& call, std::optional<std::uint32_t> held_number, std::shared_ptr<const Program> by) {
  auto compiled = by ? Result<std::shared_ptr<const Program>>(std::move(by)) : plan(call);
  if (!compiled) return compiled.status();
  auto operation = make_operation(named(call));
  operation->sequence = held_number ? *held_number : next_sequence_++;
  if (window_.empty()) first_sequence_ = operation->sequence;
  if (held_number) window_[operation->sequence - first_sequence_] = operation;
  else window_.push_back(operation);
  const bool wide = needs_wide(call.binding, **compiled);
  if (wide || (call.call.op == ReduceOp::premul_sum && algorithms::is_reduction(call.call.collective))) {
    algorithms::Request request = (*compiled)->request;
    request.in_place = false;
    compiled = program((*compiled)->algorithm, request);
    stage(*operation, call, wide);
  }
  address(call, **compiled, operation->sequence);
  call.binding.token = operation->token;
  operation->execution = engine_->take_execution();
  operation->execution->bind(*compiled, call.binding);
  if (window_.front() == operation) operation->execution->set_oldest();
  return operation;
}

Work Member::barrier(DeviceStream stream) {
  const Barrier call{&barrier_byte_, &barrier_byte_};
  if (stream.given) return start_on(stream.handle, call);
  auto prepared = prepare(call, {rank_, rank_count()});
  if (!prepared) return Work(prepared.status());
  return start(std::move(*prepared));
}

Work Member::start_pair(Collective what, Prepared call, int peer) {
  auto held = engine_->lock();
  if (destroyed_) return refuse(Status(Code::invalid_state, "the communicator was destroyed"), held);
  if (!broken_.ok()) return refuse(broken_, held);
  auto operation = make_operation(call.call);
  Pair& pair = pairs_[std::size_t(peer)];
  if (peer == rank_) {
    engine_->track(operation);
    to_self(operation, std::move(call));
    held.unlock();
    return Work(operation);
  }
  operation->sequence = what == Collective::send ? pair.sends++ : pair.receives++;
  bind_pair(operation, what, call, peer);
  return submit(operation, held);
}

// Numbered already.
void Member::bind_pair(const std::shared_ptr<Operation>& operation, Collective what, Prepared& call, int peer) {
  Pair& pair = pairs_[std::size_t(peer)];
  if (what == Collective::recv) pair.receiving.push_back(operation);
  operation->call.collective = Collective::send;
  call.binding.header.key = {id_ | kPairBit, operation->sequence, 0};
  call.binding.header.call = pack(operation->call);
  call.binding.segment_limit = engine_->settings().segment;
  call.binding.lending = lending_of_pairs(engine_->settings(), planner_.prices());
  call.binding.token = operation->token;
  operation->execution = engine_->take_execution();
  operation->execution->bind(pair_program(what, peer), call.binding);
  if (what == Collective::send) pair.sending.push_back(operation);
  if (what == Collective::send && pair.sending.front() == operation) operation->execution->set_oldest();
}

// A send to oneself meets the recv of the same number, whichever comes first.
void Member::to_self(const std::shared_ptr<Operation>& operation, Prepared call) {
  auto& waiting = pairs_[std::size_t(rank_)].to_self;
  if (waiting.empty() || waiting.front().first->call.collective == operation->call.collective) {
    waiting.emplace_back(operation, std::move(call));
    return;
  }
  auto [other, other_call] = std::move(waiting.front());
  waiting.pop_front();
  const bool sends = operation->call.collective == Collective::send;
  const Prepared& from = sends ? call : other_call;
  const Prepared& to = sends ? other_call : call;
  Status status;
  if (from.call.count != to.call.count || from.call.type != to.call.type)
    status = Status(Code::mismatch, fmt::format("rank {} sends itself {} but receives {}", rank_, to_string(from.call), to_string(to.call)), rank_);
  else if (from.bytes)
    std::memmove(to.binding.output, from.binding.input, from.bytes);
  engine_->complete(*operation, status);
  engine_->complete(*other, status);
}

// --- split, ends ---

Result<Communicator> Member::split(int color, int key) {
  struct Entry {
    std::int32_t color, key;
    std::uint32_t id;
  };
  Entry mine{color, key, 0};
  if (rank_ == 0) {
    auto held = engine_->lock();
    mine.id = engine_->allot_communicator();
  }
  std::vector<Entry> entries(world_ranks_.size());
  AllGather call{&mine, entries.data(), sizeof(Entry), DataType::u8};
  auto prepared = prepare(call, {rank_, rank_count()});
  if (!prepared) return prepared.status();
  if (Status status = start(std::move(*prepared)).wait(); !status.ok()) return status;
  if (color < 0) return Communicator();
  const std::uint32_t id = entries[0].id;      // of all colours: no rank is in two of them
  std::vector<int> members;
  for (int r = 0; r < rank_count(); ++r)
    if (entries[std::size_t(r)].color == color) members.push_back(r);
  std::stable_sort(members.begin(), members.end(), [&](int a, int b) { return entries[std::size_t(a)].key < entries[std::size_t(b)].key; });
  const auto device = [this] {
    std::lock_guard alone(relay_mutex_);
    return device_;
  }();
  auto held = engine_->lock();
  auto member = descend(id, members);
  if (device) member->use_device(device);
  return handle(std::move(member));
}

std::shared_ptr<Member> Member::descend(std::uint32_t id, const std::vector<int>& members) {
  std::vector<int> world;
  std::vector<std::vector<int>> levels(levels_.size());
  for (int r : members) world.push_back(world_ranks_[std::size_t(r)]);
  for (std::size_t l = 0; l < levels_.size(); ++l) levels[l] = regroup(levels_[l], members);
  const int rank = int(std::find(members.begin(), members.end(), rank_) - members.begin());
  auto member = std::make_shared<Member>(engine_, id, std::move(world), rank, std::move(levels), planner_.fresh());
  engine_->add_member(member);
  return member;
}

Shrinking& Member::shrinking() {
  if (!shrinking_) shrinking_ = std::make_unique<Shrinking>(*engine_, *this);
  return *shrinking_;
}

Work Member::begin_shrink(std::chrono::milliseconds limit, const std::vector<int>& without) {
  auto held = engine_->lock();
  if (destroyed_) return Work(Status(Code::invalid_state, "the communicator was destroyed"));
  if (rank_count() == 1) return Work(Status());
  if (shrinking().begun()) return Work(Status(Code::invalid_state, "shrink was called before: shrink the communicator that it gave"));
  auto operation = make_operation({Collective::barrier});
  operation->sequence = ~0u;
  operation->outlives = true;
  engine_->track(operation);
  if (limit.count() <= 0) limit = engine_->settings().timeout.count() > 0 ? engine_->settings().timeout : std::chrono::milliseconds(60000);
  shrinking().begin(operation, limit, without);
  engine_->nudge();
  held.unlock();
  engine_->run_callbacks();
  return Work(operation);
}

Result<Communicator> Member::take_survivors() {
  auto held = engine_->lock();
  if (destroyed_) return Status(Code::invalid_state, "the communicator was destroyed");
  if (rank_count() == 1) return handle(descend(engine_->allot_communicator(), {0}));
  const Agreement& agreement = shrinking().agreement();
  if (agreement.state() != Agreement::State::agreed) return Status(Code::invalid_state, "the ranks have not agreed on who goes on");
  return handle(descend(agreement.id(), agreement.members()));
}

std::vector<int> regroup(const std::vector<int>& groups, const std::vector<int>& members) {
  std::vector<int> seen, out;
  for (int r : members) {
    const int group = groups[std::size_t(r)];
    const auto at = std::find(seen.begin(), seen.end(), group);
    out.push_back(int(at - seen.begin()));
    if (at == seen.end()) seen.push_back(group);
  }
  return out;
}

void Member::abort(const std::string& reason) {
  {
    auto held = engine_->lock();
    const Status verdict(Code::aborted, fmt::format("{} aborted: {}", engine_->describe(engine_->world_rank()), reason), rank_);
    if (broken_.ok()) engine_->spread_verdict(*this, verdict);
    engine_->settle(*this, verdict);
    engine_->nudge();
  }
  engine_->run_callbacks();
}

void Member::destroy(std::chrono::milliseconds limit) {
  bool last = false;
  {
    auto held = engine_->lock();
    if (destroyed_) return;
    destroyed_ = true;
  }
  if (limit.count() > 0) {
    const auto until = std::chrono::steady_clock::now() + limit;
    std::vector<std::shared_ptr<Operation>> pending;
    {
      auto held = engine_->lock();
      for (const auto& operation : window_)
        if (operation && operation != held_) pending.push_back(operation);
    }
    for (const auto& operation : pending) {
      const auto left = until - std::chrono::steady_clock::now();
      if (left.count() > 0) Work(operation).wait_for(left);
    }
  }
  {
    auto held = engine_->lock();
    const auto keep = shared_from_this();
    if (shrinking_) shrinking_->stop(Status(Code::aborted, "the communicator was destroyed during shrink", rank_));
    engine_->settle(*this, Status(Code::aborted, "the communicator was destroyed while the operation was pending", rank_));
    engine_->remove_member(id_);
    last = !engine_->has_members();
  }
  {
    std::lock_guard alone(relay_mutex_);
    if (relay_) relay_->leave();
    relay_.reset();
  }
  engine_->run_callbacks();
  if (last) engine_->shut_down("the communicator was destroyed while the operation was pending");
}

}  // namespace tutti::comm
