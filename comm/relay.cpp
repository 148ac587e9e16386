#include "comm/relay.h"

#include <fmt/format.h>

#include "comm/engine.h"
#include "comm/member.h"
#include "core/check.h"

namespace tutti::comm {
namespace {

template <class... F>
struct Overloaded : F... {
  using F::operator()...;
};

template <class T>
const std::byte* input_of(const T& call) {
  if constexpr (requires { call.input; })
    return static_cast<const std::byte*>(call.input);
  else
    return nullptr;
}
template <class T>
std::byte* output_of(const T& call) {
  if constexpr (requires { call.output; })
    return static_cast<std::byte*>(call.output);
  else
    return nullptr;
}

}  // namespace

Collective collective_of(const Form& form) {
  return std::visit(
      Overloaded{[](const AllReduce&) { return Collective::all_reduce; },
                 [](const ReduceScatter&) { return Collective::reduce_scatter; },
                 [](const AllGather&) { return Collective::all_gather; },
                 [](const Broadcast&) { return Collective::broadcast; },
                 [](const Reduce&) { return Collective::reduce; }, [](const Gather&) { return Collective::gather; },
                 [](const Scatter&) { return Collective::scatter; },
                 [](const AllToAll&) { return Collective::all_to_all; }, [](const Send&) { return Collective::send; },
                 [](const Recv&) { return Collective::recv; }},
      form);
}

Result<Prepared> prepare(const Form& form, Rank self) {
  return std::visit([&](const auto& call) { return prepare(call, self); }, form);
}

Result<std::shared_ptr<Relay>> Relay::make(std::shared_ptr<Device> device, Member& member) {
  std::shared_ptr<Relay> relay(new Relay(std::move(device), member));
  auto memory = relay->device_->allocate_pinned(kSlots * kSlotBytes + 64);
  if (!memory) return memory.status();
  relay->slots_ = *memory;
  relay->done_ = reinterpret_cast<std::uint32_t*>(*memory + kSlots * kSlotBytes);
  auto event = relay->device_->make_event();
  if (!event) return event.status();
  relay->last_ = *event;
  relay->engine_ = member.engine().get();
  return relay;
}

Status Relay::use(std::unique_ptr<PeerMemory> peers) {
  const std::lock_guard in_order(order_);
  auto held = member_->engine()->lock();
  if (given_up_) return Status(Code::invalid_state, "the communicator was destroyed");
  peers_ = std::move(peers);
  aside_ = peers_->stream();
  return {};
}

std::size_t Relay::memory_bytes() const { return kSlots * kSlotBytes + (peers_ ? peers_->memory_bytes() : 0); }

Relay::~Relay() {
  if (slots_) device_->release_pinned(slots_);
  if (last_) device_->release_event(last_);
}

// --- calls ---

Relay::Geometry Relay::geometry_of(const Form& form) const {
  const auto ranks = std::size_t(member_->rank_count()), rank = std::size_t(member_->rank());
  Geometry g;
  std::visit(
      [&](const auto& call) {
        g.element = size_of(call.type);
        g.count = call.count;
        g.input = input_of(call);
        g.output = output_of(call);
      },
      form);
  const auto rows = [&](std::size_t all, std::size_t in, std::size_t in_at, std::size_t out, std::size_t out_at) {
    g.rows = all, g.in = in, g.in_at = in_at, g.out = out, g.out_at = out_at;
  };
  const auto root = [&](const auto& call) { return call.root == member_->rank(); };
  std::visit(Overloaded{[&](const AllReduce&) { rows(1, 1, 0, 1, 0); },
                        [&](const Reduce& c) { rows(1, 1, 0, root(c) ? 1 : 0, 0); },
                        [&](const Broadcast& c) { rows(1, root(c) ? 1 : 0, 0, 1, 0); },
                        [&](const ReduceScatter&) { rows(ranks, ranks, 0, 1, rank); },
                        [&](const AllGather&) { rows(ranks, 1, rank, ranks, 0); },
                        [&](const Gather& c) { rows(ranks, 1, rank, root(c) ? ranks : 0, 0); },
                        [&](const Scatter& c) { rows(ranks, root(c) ? ranks : 0, 0, 1, rank); },
                        [&](const AllToAll&) { rows(ranks, ranks, 0, ranks, 0); },
                        [&](const Send&) { rows(1, 1, 0, 0, 0); }, [&](const Recv&) { rows(1, 0, 0, 1, 0); }},
             form);
  const std::size_t most = std::max<std::size_t>(1, kSlotBytes / (g.rows * g.element));
  g.each = most > 16 ? most / 16 * 16 : most;  // rows begin at multiples of 16 bytes
  return g;
}

// The same call on a slot, where it is in place. The rows lie one behind another.
Form Relay::slice_of(const Call& call, std::size_t slice) const {
  const Geometry& g = call.geometry;
  const std::size_t n = g.elements(slice);
  std::byte* const at = slot(call.first + std::uint32_t(slice));
  Form form = call.form;
  std::visit(
      [&](auto& part) {
        part.count = n;
        part.stream = {};
        if constexpr (requires { part.input; }) part.input = at + g.in_at * n * g.element;
        if constexpr (requires { part.output; }) part.output = at + g.out_at * n * g.element;
      },
      form);
  return form;
}

Work Relay::start(const Form& form, StreamHandle stream) {
  if (const auto* call = std::get_if<AllReduce>(&form); call && peers_ && call->count > 0)
    if (const GpuWay way = member_->gpu_way(*call); way != GpuWay::staged) return start_kernels(*call, way, stream);
  Engine& engine = *member_->engine();
  std::lock_guard in_order(order_);
  Call call;
  call.form = form;
  call.geometry = geometry_of(form);
  const Geometry geometry = call.geometry;
  const auto slices = std::uint32_t(geometry.slices());
  std::shared_ptr<Operation> all;
  {
    auto held = engine.lock();
    auto reserved = member_->hold(form, slices);
    if (!reserved) return Work(reserved.status());
    call.held = *reserved;
    call.first = last_number_ + 1;
    all = call.all = member_->stand_in();
    last_number_ += slices;
    calls_.push_back(std::move(call));
    engine.track(all);
  }
  const Status status = enqueue(geometry, last_number_ - slices + 1, stream);
  return status.ok() ? Work(all) : refused(all, form, status);
}

// The device took not all of it. Everybody's verdict, since the others wait for it.
Work Relay::refused(const std::shared_ptr<Operation>& all, const Form& form, const Status& why) {
  const std::string text = fmt::format("{} on a stream of {}: {}", name_of(collective_of(form)), device_->describe(), why.text());
  Engine& engine = *member_->engine();
  auto held = engine.lock();
  engine.fail(*member_, Status(why.code(), text, member_->rank()));
  engine.nudge();
  return Work(all);
}

// --- calls that are kernels ---

Work Relay::start_kernels(const AllReduce& form, GpuWay way, StreamHandle stream) {
  Engine& engine = *member_->engine();
  std::lock_guard in_order(order_);
  Call call;
  call.form = form;
  call.begun = call.geometry.slices();  // none to begin
  call.kernel = kernel_ + 1;
  std::shared_ptr<Operation> all;
  {
    auto held = engine.lock();
    auto started = member_->start_in_kernel(form);
    if (!started) return Work(started.status());
    all = call.all = *started;
    calls_.push_back(std::move(call));
    engine.nudge();
  }
  const Status status = enqueue_kernels(form, way, pack(all->call), stream);
  return status.ok() ? Work(all) : refused(all, form, status);
}

Status Relay::enqueue_kernels(const AllReduce& form, GpuWay way, std::uint64_t packed, StreamHandle stream) {
  auto keep = std::make_unique<std::shared_ptr<Relay>>(shared_from_this());
  const std::size_t element = size_of(form.type), most = kGpuPiece / element;
  SharedReduction piece;
  piece.two_shot = way == GpuWay::two_shot;
  piece.type = form.type, piece.op = form.op, piece.factor = form.factor;
  piece.rank = peers_->rank(), piece.ranks = peers_->rank_count();
  for (int r = 0; r < piece.ranks; ++r) piece.areas[r] = peers_->area(r);
  piece.half = kGpuPiece;
  piece.call = packed, piece.words = &peers_->words();
  Status status;
  if (any_ && stream != last_stream_) status = device_->wait(stream, last_);
  for (std::size_t done = 0; done < form.count && status.ok(); done += piece.count) {
    piece.count = std::min(most, form.count - done);
    piece.input = static_cast<const std::byte*>(form.input) + done * element;
    piece.output = static_cast<std::byte*>(form.output) + done * element;
    piece.blocks = gpu_blocks(piece.count * element);
    piece.number = ++kernel_, piece.meeting = meeting_;
    meeting_ += SharedReduction::meetings(piece.two_shot);
    status = device_->all_reduce(stream, piece);
  }
  any_ = true;
  last_stream_ = stream;
  if (Status marked = device_->record(stream, last_); status.ok()) status = marked;
  if (Status waits = device_->wait(aside_, last_); status.ok()) status = waits;
  const Status kept = device_->call(aside_, status.ok() ? &passed : &let_go, keep.get());
  (void)keep.release();  // the stream's; where it does not even take that, for ever
  return status.ok() ? kept : status;
}

void Relay::note_begun() {
  if (!peers_) return;
  SharedWords& words = peers_->words();
  const std::uint32_t begun = std::atomic_ref(words.begun).load(std::memory_order_acquire);
  for (Call& call : calls_) {
    if (call.kernel == 0) continue;
    if (std::int32_t(begun - call.kernel) < 0) break;
    for (int r = 0; r < member_->rank_count() && call.all->meets.size() + 1 < std::size_t(member_->rank_count()); ++r)
      if (r != member_->rank()) call.all->meets.push_back(r);
  }
}

// Whether no kernel has ended early; otherwise nothing can be completed any more.
bool Relay::kernels_are_well() {
  SharedWords& words = peers_->words();
  const std::uint32_t outcome = std::atomic_ref(words.outcome).load(std::memory_order_acquire);
  if (outcome != SharedWords::kMismatch) return outcome == 0;
  const Call* of = nullptr;
  for (const Call& call : calls_)
    if (call.kernel != 0 && std::int32_t(words.number - call.kernel) >= 0) of = &call;
  const std::uint64_t theirs = words.call[0] | std::uint64_t(words.call[1]) << 32;
  if (of) member_->engine()->disagree(*member_, member_->world_rank(int(words.peer)), *of->all, theirs);
  return false;
}

// Behind all of its kernels. The stream keeps this object until then.
void Relay::leave() {
  const std::lock_guard in_order(order_);
  if (!peers_) return;
  auto keep = std::make_unique<std::shared_ptr<Relay>>(shared_from_this());
  if (any_ && !device_->wait(aside_, last_).ok()) return;
  peers_->leave();
  (void)device_->call(aside_, &let_go, keep.get());
  (void)keep.release();
}

// What is on the stream knows this object and its slots, so the stream keeps it until it has passed, also behind a failure.
Status Relay::enqueue(const Geometry& g, std::uint32_t first, StreamHandle stream) {
  auto keep = std::make_unique<std::shared_ptr<Relay>>(shared_from_this());
  const Status status = enqueue_slices(g, first, stream);
  const Status kept = device_->call(stream, status.ok() ? &passed : &let_go, keep.get());
  (void)keep.release();  // the stream's; where it does not even take that, for ever
  if (!status.ok() || !kept.ok()) return status.ok() ? kept : status;
  any_ = true;
  last_stream_ = stream;
  return device_->record(stream, last_);
}

Status Relay::enqueue_slices(const Geometry& g, std::uint32_t first, StreamHandle stream) {
  if (any_ && stream != last_stream_)
    if (Status s = device_->wait(stream, last_); !s.ok()) return s;
  const std::size_t slices = g.slices();
  for (std::size_t k = 0; k < slices + kSlots; ++k) {
    if (k >= kSlots && k - kSlots < slices) {
      const auto number = std::uint32_t(first + k - kSlots);
      if (Status s = enqueue_out(g, k - kSlots, slot(number), number, stream); !s.ok()) return s;
    }
    if (k < slices)
      if (Status s = enqueue_in(g, k, slot(std::uint32_t(first + k)), stream); !s.ok()) return s;
  }
  return {};
}

Status Relay::enqueue_in(const Geometry& g, std::size_t slice, std::byte* at, StreamHandle stream) {
  const std::size_t bytes = g.elements(slice) * g.element;
  if (g.in && bytes) {
    const Rows rows{bytes, g.in, bytes, g.count * g.element};
    if (Status s = device_->copy(stream, at + g.in_at * bytes, g.input + slice * g.each * g.element, rows); !s.ok())
      return s;
  }
  return device_->call(stream, &arrived, this);
}

Status Relay::enqueue_out(const Geometry& g, std::size_t slice, std::byte* at, std::uint32_t number,
                          StreamHandle stream) {
  if (Status s = device_->await(stream, done_, number); !s.ok()) return s;
  const std::size_t bytes = g.elements(slice) * g.element;
  if (!g.out || !bytes) return {};
  return device_->copy(stream, g.output + slice * g.each * g.element, at + g.out_at * bytes,
                       {bytes, g.out, g.count * g.element, bytes});
}

// --- what the streams say ---

void Relay::arrived(void* self) {
  Relay& relay = *static_cast<Relay*>(self);
  relay.arrived_.fetch_add(1, std::memory_order_release);
  relay.alarm();
}

void Relay::passed(void* keeps) {
  const std::unique_ptr<std::shared_ptr<Relay>> relay(static_cast<std::shared_ptr<Relay>*>(keeps));
  (*relay)->passed_.fetch_add(1, std::memory_order_release);
  (*relay)->alarm();
}

void Relay::let_go(void* keeps) { delete static_cast<std::shared_ptr<Relay>*>(keeps); }

void Relay::alarm() {
  std::lock_guard held(alarm_);
  if (engine_) engine_->alarm();
}

void Relay::detach() {
  give_up();
  std::lock_guard held(alarm_);
  engine_ = nullptr;
}

void Relay::give_up() {
  given_up_ = true;
  if (peers_) std::atomic_ref(peers_->words().abort).store(1, std::memory_order_release);
  set_done(last_number_);
  running_.clear();
  calls_.clear();
}

// --- progress ---

Status Relay::begin_next() {
  while (calls_[begin_].begun == calls_[begin_].geometry.slices()) ++begin_;
  Call& call = calls_[begin_];
  const std::size_t slice = call.begun++;
  ++begun_;
  auto prepared = prepare(slice_of(call, slice), member_->self());
  if (!prepared) return prepared.status();
  auto operation = member_->begin_held(call.form, std::move(*prepared), call.held + std::uint32_t(slice));
  if (!operation) return operation.status();
  running_.push_back({call.first + std::uint32_t(slice), std::move(*operation)});
  return {};
}

bool Relay::advance() {
  if (given_up_) return false;
  if (!member_->broken().ok()) return give_up(), true;
  bool any = false;
  const std::uint32_t passed = passed_.load(std::memory_order_acquire);  // before: what has passed has arrived, and has said how it ended
  note_begun();
  if (peers_ && !kernels_are_well()) return false;
  while (begun_ != arrived_.load(std::memory_order_acquire)) {
    any = true;
    if (Status status = begin_next(); !status.ok()) member_->engine()->fail(*member_, status);
    if (!member_->broken().ok()) return give_up(), true;
  }
  for (; !running_.empty() && running_.front().operation->complete(); any = true) {
    if (!running_.front().operation->status().ok()) return any;  // its verdict is everybody's, and on its way
    set_done(running_.front().number);
    running_.pop_front();
  }
  for (; ended_ != passed; any = true) {
    TUTTI_CHECK(!calls_.empty());
    const auto all = std::move(calls_.front().all);
    calls_.pop_front();
    if (begin_ > 0) --begin_;
    ++ended_;
    member_->engine()->complete(*all, {});
  }
  return any;
}

}  // namespace tutti::comm
