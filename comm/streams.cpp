// Member's part in operations on streams: its relay, and operations that have their number and begin later.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "comm/member.h"
#include "comm/straight_run.h"
#include "core/log.h"
#include "kernels/cuda/cuda_device.h"
#include "transport/rdma/rdma_transport.h"

namespace tutti::comm {

namespace {
constexpr const char* kByKernels = "collectives by kernels in the memory of the GPUs";
constexpr std::size_t kMostWays = 4096;  // remembered
}  // namespace

bool Member::is_held(std::uint32_t sequence) const {
  const std::uint32_t at = sequence - first_sequence_;
  return held_ && at < window_.size() && window_[at] == held_;
}

std::uint32_t Member::started() const {
  const auto first = std::find_if(window_.begin(), window_.end(), [this](const auto& operation) {
    return operation && (operation == held_ || (operation->in_kernel && operation->meets.empty()));
  });
  return first == window_.end() ? next_sequence_ : first_sequence_ + std::uint32_t(first - window_.begin());
}

Result<Device*> Member::device() {
  std::lock_guard alone(relay_mutex_);
  if (!device_) {
    auto device = kernels::cuda::open_device();
    if (!device) return device.status();
    device_ = std::move(*device);
  }
  return device_.get();
}

Result<std::shared_ptr<Relay>> Member::relay() {
  std::lock_guard alone(relay_mutex_);
  if (relay_) return relay_;
  auto relay = Relay::make(device_, *this);
  if (!relay) return relay.status();
  auto held = engine_->lock();
  if (destroyed_) {
    (*relay)->detach();
    return Status(Code::invalid_state, "the communicator was destroyed");
  }
  if (Status added = engine_->add_relay(*relay); !added.ok()) {
    (*relay)->detach();
    return added;
  }
  relay_ = *relay;
  return relay;
}

Result<std::string> Member::use_gpu() {
  const auto gpu = device();
  // Who has none takes part all the same: the others wait.
  const auto carrier = gpu ? relay() : Result<std::shared_ptr<Relay>>(gpu.status());
  if (carrier && (*carrier)->has_peers()) return std::string(kByKernels);
  auto made = PeerMemory::make(carrier ? device_ : nullptr, carrier ? "" : carrier.status().text(), *this);
  if (made && !made->memory) {
    auto straight = StraightRanks::agree(carrier ? device_ : nullptr, carrier ? "" : carrier.status().text(), *this, [&] { return (*carrier)->reserve(); });
    if (!straight) return straight.status();
    std::string text = straight->text();
    if (!straight->any()) text = fmt::format("through the host's memory: {}{}{}", made->why_not, text.empty() ? "" : "; ", text);
    {
      auto held = engine_->lock();
      straight_ = std::move(*straight);
    }
    if (!carrier) return carrier.status();
    log::info("operations on streams go {}", text);
    return text;
  }
  if (!carrier) return carrier.status();
  if (!made) return made.status();
  if (Status status = (*carrier)->use(std::move(made->memory)); !status.ok()) return status;
  return std::string(kByKernels);
}

bool Member::uses_peers() {
  std::lock_guard alone(relay_mutex_);
  return relay_ && relay_->has_peers();
}

Member::GpuChoice Member::gpu_choice(const Prepared& call) {
  auto held = engine_->lock();
  const Collective what = call.call.collective;
  const std::tuple key{what, call.call.root, call.bytes};
  if (const auto known = gpu_choices_.find(key); known != gpu_choices_.end()) return known->second;
  GpuQuestion question{what, call.bytes, rank_count(), 0, false};
  Question host;
  host.request = {what, rank_count(), call.call.root, true, levels_, {}, engine_->settings().channels};
  host.bytes = call.bytes;
  if (const auto plans = planner_.plans(host)) {
    question.host_seconds = plans->front().seconds;
    question.host_rule = plans->front().reason.starts_with("TUTTI_");
  }
  if (gpu_choices_.size() >= kMostWays) gpu_choices_.clear();
  const GpuPlan best = gpu_plans(question, engine_->settings()).front();
  return gpu_choices_[key] = {best.way, best.seconds};
}

// The `_v` forms' places are each rank's own, so they would not all decide alike.
StraightWay Member::straight_way(const Form& form, const Prepared& call) {
  if (std::holds_alternative<AllGatherV>(form) || std::holds_alternative<ReduceScatterV>(form)) return {};
  auto held = engine_->lock();
  const int peer = peer_of(form);
  if (peer < 0) return {straight_program(call), straight_reduction(call)};
  if (!straight_ || !straight_->with(peer) || call.bytes <= transport::RdmaTransport::kEager) return {};
  return {pair_program(std::holds_alternative<Send>(form) ? Collective::send : Collective::recv, peer), {}};
}

// Under the lock. An algorithm that the user has set is the host's.
StraightReduction Member::straight_reduction(const Prepared& call) {
  if (!straight_ || !straight_->all() || !reduces_straight(call, rank_count(), transport::RdmaTransport::kEager)) return {};
  algorithms::Request request = request_of(call);
  Question question;
  question.request = request;
  question.request.in_place = true;
  question.bytes = call.bytes;
  const auto plans = planner_.plans(question);
  if (!plans || plans->front().reason.starts_with("TUTTI_")) return {};
  const auto direct = [&](Collective part, bool in_place) {
    request.collective = part;
    request.in_place = in_place;
    return program("direct", request);
  };
  const Collective what = call.call.collective;
  StraightReduction out{direct(Collective::all_to_all, false), nullptr};
  if (what == Collective::all_reduce) out.gather = direct(Collective::all_gather, true);
  if (what == Collective::reduce) out.gather = direct(Collective::gather, rank_ == call.call.root);
  return out;
}

// Under the lock. The first plan that can be run so.
std::shared_ptr<const Program> Member::straight_program(const Prepared& call) {
  if (!straight_ || !straight_->all() || algorithms::is_reduction(call.call.collective) || !call.uniform || !call.contiguous || call.bytes == 0) return nullptr;
  algorithms::Request request = request_of(call);
  const std::tuple key{call.call.collective, request.root, call.bytes, size_of(call.binding.type)};
  auto known = straight_algorithms_.find(key);
  if (known == straight_algorithms_.end()) {
    if (straight_algorithms_.size() >= kMostWays) straight_algorithms_.clear();
    std::string algorithm;
    Question question;
    question.request = request;
    question.request.in_place = true;      // asked alike by all
    question.bytes = call.bytes;
    const auto plans = planner_.plans(question);
    for (std::size_t i = 0; plans && i < plans->size() && algorithm.empty(); ++i)
      if (is_straight(*(*plans)[i].generator, request, call.binding, transport::RdmaTransport::kEager)) algorithm = (*plans)[i].generator->name();
    known = straight_algorithms_.emplace(key, algorithm).first;
  }
  return known->second.empty() ? nullptr : program(known->second, request);
}

Status Member::start_in_kernel(const Prepared& call, const std::shared_ptr<Operation>& operation) {
  if (destroyed_) return Status(Code::invalid_state, "the communicator was destroyed");
  if (!broken_.ok()) return broken_;
  operation->call = named(call);
  operation->in_kernel = true;
  operation->sequence = next_sequence_++;
  if (window_.empty()) first_sequence_ = operation->sequence;
  window_.push_back(operation);
  calls_[operation->sequence % calls_.size()] = pack(operation->call);
  engine_->start_in_kernel(operation);
  return {};
}

Work Member::start_on(StreamHandle stream, const Form& form) {
  const auto refused = [&](Code code, const std::string& why) {
    return refuse(Status(code, fmt::format("{} on a stream: {}", name_of(collective_of(form)), why)));
  };
  auto checked = prepare(form, {rank_, rank_count()});
  if (!checked) return refuse(checked.status());
  const auto gpu = device();
  if (!gpu) return refused(gpu.status().code(), gpu.status().text());
  const auto capturing = (*gpu)->capturing(stream);
  if (!capturing) return refused(capturing.status().code(), capturing.status().text());
  if (*capturing)
    return refused(Code::unsupported,
                   "the stream is being captured into a graph, and the host takes part in the operation each time: "
                   "call it outside of the capture");
  const auto carrier = relay();  // not before: a capture bears no allocation
  if (!carrier) return refused(carrier.status().code(), carrier.status().text());
  auto call = (*carrier)->book(form, std::move(*checked), stream);
  if (!call) {      // the others go on, and would wait for this rank
    const Status cause(call.status().code(), fmt::format("{} on a stream: {} cannot begin it: {}", name_of(collective_of(form)),
                                                         engine_->describe(engine_->world_rank()), call.status().text()), rank_);
    {
      auto held = engine_->lock();
      engine_->fail(*this, cause);
      engine_->nudge();
    }
    engine_->run_callbacks();
    return refuse(cause);
  }
  {
    auto held = engine_->lock();
    if (Group* const group = group_of_this_thread()) {
      group->on_streams.push_back(*call);
      return Work((*call)->all);
    }
  }
  launch({*call});
  return Work((*call)->all);
}

// Ranks that have others' counts agree on no number of slices; pairs do.
Work Member::start_on(StreamHandle stream, const AllToAllV& call) {
  if (const auto checked = prepare(call, {rank_, rank_count()}); !checked) return refuse(checked.status());
  const std::size_t element = size_of(call.type), ranks = std::size_t(rank_count());
  std::vector<std::size_t> in = call.send_offsets, out = call.recv_offsets;
  for (std::size_t r = 0, from = 0, to = 0; r < ranks; from += call.send_counts[r], to += call.recv_counts[r], ++r) {
    if (call.send_offsets.empty()) in.push_back(from);
    if (call.recv_offsets.empty()) out.push_back(to);
  }
  begin_group();
  const auto booked = [this] {
    auto held = engine_->lock();
    return group_of_this_thread()->on_streams;
  };
  const std::size_t before = booked().size();
  for (std::size_t k = 0; k < ranks; ++k) {
    const std::size_t to = (std::size_t(rank_) + k) % ranks, from = (std::size_t(rank_) + ranks - k) % ranks;
    if (call.send_counts[to])
      (void)start_on(stream, Send{static_cast<const std::byte*>(call.input) + in[to] * element, call.send_counts[to],
                                  call.type, int(to)});
    if (call.recv_counts[from])
      (void)start_on(stream, Recv{static_cast<std::byte*>(call.output) + out[from] * element, call.recv_counts[from],
                                  call.type, int(from)});
  }
  std::vector<std::shared_ptr<Operation>> parts;
  const auto all = booked();
  for (std::size_t i = before; i < all.size(); ++i) parts.push_back(all[i]->all);
  Status refused;
  {
    auto held = engine_->lock();
    refused = group_of_this_thread()->refused;
  }
  (void)end_group();  // of the user's group it may be a part
  return joined(parts, refused);
}

// What a rank sends to itself on a stream it receives in the same group: nothing else could be ordered.
void Member::launch(std::vector<std::shared_ptr<Relay::Call>> calls) {
  const auto to_self = [this](const auto& call) { return peer_of(call->form) == rank_; };
  std::vector<std::shared_ptr<Relay::Call>> sends, receives;
  for (const auto& call : calls)
    if (to_self(call)) (std::holds_alternative<Send>(call->form) ? sends : receives).push_back(call);
  Status wrong;
  if (sends.size() != receives.size())
    wrong = Status(Code::unsupported,
                   fmt::format("send or recv on a stream with this rank itself: {} sends and {} receives in the group, wanted as many",
                               sends.size(), receives.size()), rank_);
  for (std::size_t i = 0; i < sends.size() && wrong.ok(); ++i) {
    const auto& from = std::get<Send>(sends[i]->form);
    const auto& to = std::get<Recv>(receives[i]->form);
    if (from.count != to.count || from.type != to.type)
      wrong = Status(Code::mismatch, fmt::format("rank {} sends itself {}[{}] but receives {}[{}]", rank_, name_of(from.type), from.count,
                                                 name_of(to.type), to.count), rank_);
  }
  std::shared_ptr<Relay> relay;
  {
    std::lock_guard alone(relay_mutex_);
    relay = relay_;
  }
  auto held = engine_->lock();
  if (!wrong.ok())
    for (const auto& call : calls)
      if (to_self(call)) engine_->complete(*call->all, wrong);
  if (!relay)
    for (const auto& call : calls) engine_->complete(*call->all, Status(Code::invalid_state, "the communicator was destroyed"));
  held.unlock();
  std::erase_if(calls, [](const auto& call) { return call->all->complete(); });
  engine_->run_callbacks();
  if (relay && !calls.empty()) relay->launch(calls);
}

Result<std::uint32_t> Member::hold(const Form& form, std::uint32_t count) {
  if (destroyed_) return Status(Code::invalid_state, "the communicator was destroyed");
  if (!broken_.ok()) return broken_;
  const auto pair_numbers = [&](int peer, bool receives) -> Result<std::uint32_t> {
    Pair& pair = pairs_[std::size_t(peer)];
    std::uint32_t& next = receives ? pair.receives : pair.sends;
    for (std::uint32_t i = 0; receives && i < count; ++i) pair.held.push_back(next + i);
    return std::exchange(next, next + count);
  };
  if (const auto* send = std::get_if<Send>(&form)) return pair_numbers(send->peer, false);
  if (const auto* recv = std::get_if<Recv>(&form)) return pair_numbers(recv->peer, true);
  if (!held_) held_ = make_operation({Collective::barrier});
  if (window_.empty()) first_sequence_ = next_sequence_;
  window_.insert(window_.end(), count, held_);
  return std::exchange(next_sequence_, next_sequence_ + count);
}

Result<std::shared_ptr<Operation>> Member::begin_held(const Form& form, Prepared call, std::uint32_t number, std::shared_ptr<const Program> program) {
  const auto* const send = std::get_if<Send>(&form);
  const auto* const recv = std::get_if<Recv>(&form);
  std::shared_ptr<Operation> operation;
  if (send || recv) {
    const int peer = send ? send->peer : recv->peer;
    operation = make_operation(call.call);
    operation->sequence = number;
    if (recv) std::erase(pairs_[std::size_t(peer)].held, number);
    bind_pair(operation, send ? Collective::send : Collective::recv, call, peer);
  } else {
    auto bound = bind(call, number, std::move(program));
    if (!bound) return bound;
    operation = std::move(*bound);
  }
  engine_->start(operation);
  return operation;
}

std::shared_ptr<Operation> Member::stand_in() {
  auto operation = make_operation({Collective::barrier});
  operation->sequence = ~0u;
  return operation;
}

}  // namespace tutti::comm
