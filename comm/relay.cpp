#include "comm/relay.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "algorithms/schedule.h"
#include "comm/engine.h"
#include "comm/member.h"
#include "core/check.h"
#include "core/no_memory.h"
#include "kernels/kernels.h"
#include "transport/ranges.h"

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

// Areas of the GPU's memory that no communicator uses: nobody may free memory wherever a communicator ends.
std::mutex areas_mutex;
std::vector<std::pair<std::weak_ptr<Device>, std::byte*>>& areas() {
  static auto& all = *new std::vector<std::pair<std::weak_ptr<Device>, std::byte*>>;
  return all;
}

Result<std::byte*> area_of(const std::shared_ptr<Device>& device) {
  {
    const std::lock_guard held(areas_mutex);
    const auto mine = std::find_if(areas().begin(), areas().end(), [&](const auto& area) { return area.first.lock() == device; });
    if (mine != areas().end()) {
      std::byte* const found = mine->second;
      areas().erase(mine);
      return found;
    }
  }
  return device->allocate(StraightReduction::kArea);
}

void give_back_area(const std::shared_ptr<Device>& device, std::byte* area) {
  const std::lock_guard held(areas_mutex);
  areas().emplace_back(device, area);
}

// An allocation, or several that lie side by side, with all these bytes.
std::optional<Device::Allocation> allocation_of(Device& device, const std::byte* data, std::uint64_t bytes) {
  constexpr std::uint64_t kPrime = 0x100000001b3;
  std::optional<Device::Allocation> out;
  for (const std::byte* at = data; at < data + bytes;) {
    const auto part = device.allocation_of(at);
    if (!part) return std::nullopt;
    if (!out) out = *part;
    else out->bytes += part->bytes, out->number = out->number * kPrime + part->number;
    at = part->data + part->bytes;
  }
  return out;
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
                 [](const AllToAll&) { return Collective::all_to_all; },
                 [](const AllGatherV&) { return Collective::all_gather; },
                 [](const ReduceScatterV&) { return Collective::reduce_scatter; },
                 [](const Barrier&) { return Collective::barrier; }, [](const Send&) { return Collective::send; },
                 [](const Recv&) { return Collective::recv; }},
      form);
}

Result<Prepared> prepare(const Form& form, Rank self) {
  return std::visit([&](const auto& call) { return prepare(call, self); }, form);
}

int peer_of(const Form& form) {
  return std::visit(
      [](const auto& call) {
        if constexpr (requires { call.peer; })
          return call.peer;
        else
          return -1;
      },
      form);
}

Result<std::shared_ptr<Relay>> Relay::make(std::shared_ptr<Device> device, Member& member) {
  std::shared_ptr<Relay> relay(new Relay(std::move(device), member));
  for (EventHandle* event : {&relay->last_, &relay->joining_}) {
    auto made = relay->device_->make_event();
    if (!made) return made.status();
    *event = *made;
  }
  relay->engine_ = member.engine().get();
  return relay;
}

Status Relay::reserve() {
  const std::lock_guard in_order(order_);
  if (!beside_) {
    auto opened = device_->open_stream();
    if (!opened) return opened.status();
    beside_ = *opened;
  }
  if (area_ || member_->rank_count() > DeviceReduction::kMostInputs) return {};
  auto made = area_of(device_);
  if (!made) return made.status();
  note(*made, StraightReduction::kArea);
  auto held = member_->engine()->lock();
  area_ = *made;
  return {};
}

Status Relay::use(std::unique_ptr<PeerMemory> peers) {
  const std::lock_guard in_order(order_);
  auto held = member_->engine()->lock();
  if (given_up_) return Status(Code::invalid_state, "the communicator was destroyed");
  peers_ = std::move(peers);
  return {};
}

Relay::~Relay() {
  for (const auto& [key, lane] : lanes_) device_->release_pinned(lane->slots);
  for (const auto& manifest : manifests_) device_->release_pinned(manifest->memory);
  if (beside_) device_->close_stream(beside_);
  if (area_) give_back_area(device_, area_);
  for (const auto& aside : asides_) {
    (void)transport::drop_range(aside->memory);
    device_->release_pinned(aside->memory);
  }
  for (EventHandle event : {last_, joining_})
    if (event) device_->release_event(event);
}

// --- calls ---

// Under order_.
Result<Relay::Lane*> Relay::lane_for(const Form& form, bool straight) {
  const int peer = peer_of(form), staged = peer < 0 ? -1 : peer * 2 + !sends(form), key = straight ? -3 - staged : staged;
  if (const auto at = lanes_.find(key); at != lanes_.end()) return at->second.get();
  auto lane = std::make_unique<Lane>();
  lane->relay = this;
  lane->straight = straight;
  lane->slot_bytes = straight ? 0 : peer < 0 ? kSlotBytes : kPairSlotBytes;
  constexpr std::size_t kLine = 64;
  auto memory = allocate_pinned(kSlots * lane->slot_bytes + 2 * kLine + kSlots * Passage::kRemarkBytes);
  if (!memory) return memory.status();
  lane->slots = *memory;
  lane->arrived = reinterpret_cast<std::uint32_t*>(*memory + kSlots * lane->slot_bytes);
  lane->done = lane->arrived + kLine / sizeof(std::uint32_t);
  lane->remarks = lane->slots + kSlots * lane->slot_bytes + 2 * kLine;
  auto held = member_->engine()->lock();
  memory_bytes_ += kSlots * lane->slot_bytes;
  return (lanes_[key] = std::move(lane)).get();
}

// Rows, which of them go in and come out, and how they are cut.
void Relay::lay_out(Call& call) const {
  const auto ranks = std::uint32_t(member_->rank_count()), rank = std::uint32_t(member_->rank());
  Passage& p = call.passage;
  const auto cut = [&](std::uint32_t rows, std::uint32_t in, std::uint32_t in_count, std::uint32_t out, std::uint32_t out_count) {
    p.row_count = rows;
    p.in_begin = in, p.in_end = in + in_count, p.out_begin = out, p.out_end = out + out_count;
  };
  const auto root = [&](const auto& c) { return std::uint32_t(c.root == member_->rank()); };
  std::visit(Overloaded{[&](const AllReduce&) { cut(1, 0, 1, 0, 1); }, [&](const Reduce& c) { cut(1, 0, 1, 0, root(c)); },
                        [&](const Broadcast& c) { cut(1, 0, root(c), 0, 1); }, [&](const Barrier&) { cut(1, 0, 0, 0, 0); },
                        [&](const ReduceScatter&) { cut(ranks, 0, ranks, rank, 1); },
                        [&](const ReduceScatterV&) { cut(ranks, 0, ranks, rank, 1); },
                        [&](const AllGather&) { cut(ranks, rank, 1, 0, ranks); },
                        [&](const AllGatherV&) { cut(ranks, rank, 1, 0, ranks); },
                        [&](const Gather& c) { cut(ranks, rank, 1, 0, root(c) * ranks); },
                        [&](const Scatter& c) { cut(ranks, 0, root(c) * ranks, rank, 1); },
                        [&](const AllToAll&) { cut(ranks, 0, ranks, 0, ranks); }, [&](const Send&) { cut(1, 0, 1, 0, 0); },
                        [&](const Recv&) { cut(1, 0, 0, 0, 1); }},
             call.form);
  std::uint64_t at = 0, largest = 0;
  const auto add = [&](std::uint64_t offset, std::uint64_t count) {
    call.rows.push_back({offset * call.element, count * call.element});
    largest = std::max(largest, count * call.element);
    at = offset + count;
  };
  std::visit(
      [&](const auto& c) {
        call.element = size_of(c.type);
        if constexpr (requires { c.counts; }) {
          call.uniform = false;
          for (std::size_t r = 0; r < c.counts.size(); ++r) add(c.offsets.empty() ? at : c.offsets[r], c.counts[r]);
        } else {
          for (std::uint32_t r = 0; r < p.row_count; ++r) add(at, c.count);
        }
        p.input = input_of(c);
        p.output = output_of(c);
        if constexpr (requires { c.factor_on_device; })
          if (c.op == ReduceOp::premul_sum) p.remark = static_cast<const std::byte*>(c.factor_on_device);
        p.remark_bytes = call.element;
      },
      call.form);
  // A side that is this rank's row alone is seen as part of a whole one.
  if (p.row_count > 1 && p.in_end - p.in_begin == 1) p.input -= call.rows[p.in_begin].at;
  if (p.row_count > 1 && p.out_end - p.out_begin == 1) p.output -= call.rows[p.out_begin].at;
  const std::size_t slot = call.lane ? call.lane->slot_bytes : kSlotBytes;
  const std::uint64_t most = std::max<std::uint64_t>(1, slot / (p.row_count * call.element));
  p.each = (most > 16 ? most / 16 * 16 : most) * call.element;  // rows begin at multiples of 16 bytes
  p.slices = std::uint32_t(std::max<std::uint64_t>(1, (largest + p.each - 1) / p.each));
}

// The same call on a slot, where it is in place. The rows lie one behind another.
Form Relay::slice_of(const Call& call, std::uint32_t slice) const {
  const Passage& p = call.passage;
  std::byte* const at = p.slot(slice);
  Form form = call.form;
  std::visit(
      [&](auto& part) {
        if constexpr (requires { part.counts; }) {
          for (std::uint32_t r = 0; r < p.row_count; ++r) part.counts[r] = p.bytes(r, slice) / call.element;
          part.offsets.clear();
        } else {
          part.count = p.bytes(0, slice) / call.element;
        }
        if constexpr (requires { part.factor_on_device; }) {
          if (p.remark)
            kernels::cast(DataType::f64, reinterpret_cast<std::byte*>(&part.factor), part.type, p.remark_of(slice), 1);
          part.factor_on_device = nullptr;
        }
        part.stream = {};
        const bool own_in = p.in_end - p.in_begin == 1, own_out = p.out_end - p.out_begin == 1;
        if constexpr (requires { part.input; }) part.input = at + (own_in ? p.offset(p.in_begin, slice) : 0);
        if constexpr (requires { part.output; }) part.output = at + (own_out ? p.offset(p.out_begin, slice) : 0);
      },
      form);
  return form;
}

Result<std::shared_ptr<Relay::Call>> Relay::book(const Form& form, Prepared&& checked, StreamHandle stream) {
  auto call = std::make_shared<Call>();
  call->form = form;
  call->checked = std::move(checked);
  call->stream = call->on = stream;
  StraightWay way;
  if (peer_of(form) != member_->rank()) {
    std::lock_guard in_order(order_);
    way = peers_ ? StraightWay() : member_->straight_way(form, call->checked);
    auto lane = lane_for(form, bool(way));
    if (!lane) return lane.status();
    call->lane = *lane;
  }
  lay_out(*call);
  call->passage.rows = call->rows.data();
  if (way) {
    std::lock_guard in_order(order_);
    if (Status status = make_straight(*call, way); !status.ok()) return status;
  }
  auto held = member_->engine()->lock();
  call->all = member_->stand_in();
  return call;
}

Result<std::byte*> Relay::allocate_pinned(std::size_t bytes) {
  auto memory = device_->allocate_pinned(bytes);
  if (memory) transport::forget_gpu_ranges(*memory, bytes);      // it may lie where memory of the GPU has lain
  return memory;
}

// Under order_. The operations are on memory that the transport knows to be the GPU's.
Status Relay::make_straight(Call& call, const StraightWay& way) {
  const auto note_rows = [&](const std::byte* base, std::uint32_t begin, std::uint32_t end) {
    if (begin == end) return;
    const Row &first = call.rows[begin], &last = call.rows[end - 1];
    note(base + first.at, last.at + last.bytes - first.at);
  };
  Passage& p = call.passage;
  note_rows(p.input, p.in_begin, p.in_end);
  note_rows(p.output, p.out_begin, p.out_end);
  if (way.program) {
    if (const std::uint64_t bytes = scratch_bytes_of(*way.program, call.checked.binding); bytes > 0) {
      auto taken = take(asides_, bytes);
      if (!taken) return taken.status();
      call.aside = {(*taken)->memory, [m = *taken, calls = straight_calls_](std::byte*) { m->in_use.store(false, std::memory_order_release); }};
      if (!transport::range_of((*taken)->memory, (*taken)->bytes)) (void)transport::add_range((*taken)->memory, (*taken)->bytes, true);
    }
    call.straight = {straight_stage(call.checked, way.program, call.aside.get())};
  } else {
    call.straight = straight_stages(call.checked, member_->rank(), member_->rank_count(), way.reduction, area_,
                                    {device_->reaches(call.checked.binding.input), !call.checked.binding.output || device_->reaches(call.checked.binding.output)});
  }
  p.slices = std::uint32_t(call.straight.size());
  return {};
}

// Memory of the host is none of the GPU's any more. When an allocation is met for the first time and no call is under way, those that are gone are let go.
void Relay::note(const std::byte* data, std::uint64_t bytes) {
  const auto is_now = [&](const transport::Range& range) {
    const auto now = allocation_of(*device_, range.data, range.bytes);
    return now && now->data == range.data && now->bytes == range.bytes && now->number == range.allocation;
  };
  if (const auto known = transport::range_of(data, bytes); known && known->owner == device_.get() && is_now(*known)) return;
  auto whole = allocation_of(*device_, data, bytes);
  if (!whole) return transport::forget_gpu_ranges(data, bytes);
  for (const transport::Range& range : transport::ranges_of_gpu(device_.get())) {      // calls that are under way may be in a part of it
    const std::byte* const begin = std::min(range.data, whole->data);
    const std::byte* const end = std::max(range.data + range.bytes, whole->data + whole->bytes);
    if (range.data >= whole->data + whole->bytes || whole->data >= range.data + range.bytes) continue;
    if (const auto both = allocation_of(*device_, begin, std::uint64_t(end - begin))) whole = both;
  }
  if (!transport::note_gpu_range(whole->data, whole->bytes, device_.get(), whole->number) || straight_calls_.use_count() > 1) return;
  for (const transport::Range& range : transport::ranges_of_gpu(device_.get()))
    if (!is_now(range)) (void)transport::drop_range(range.data);
}

// Under the engine's lock.
Status Relay::number(const std::shared_ptr<Call>& call) {
  if (call->way != GpuWay::staged) {
    if (Status s = member_->start_in_kernel(call->checked, call->all); !s.ok()) return s;
    call->kernel = kernel_ + 1;
    kernel_ += std::uint32_t(pieces_of(*call));
    unfinished_.push_back(call);
    return {};
  }
  if (Lane* const lane = call->lane) {
    auto reserved = member_->hold(call->form, call->passage.slices);
    if (!reserved) return reserved.status();
    call->held = *reserved;
    call->passage.first = lane->last + 1;
    lane->last += call->passage.slices;
    call->passage.slots = lane->slots;
    call->passage.slot_bytes = lane->slot_bytes;
    call->passage.arrived = lane->arrived;
    call->passage.done = lane->done;
    call->passage.remarks = lane->remarks;
    lane->calls.push_back(call);
  }
  member_->engine()->track(call->all);
  unfinished_.push_back(call);
  return {};
}

// Under order_. Of a collective the same on all ranks, whether it is in a group or not.
GpuWay Relay::way_of(const Call& call) const {
  if (!peers_ || peer_of(call.form) >= 0 || !call.uniform || call.checked.bytes == 0) return GpuWay::staged;
  return member_->gpu_choice(call.checked).way;
}

std::uint64_t Relay::pieces_of(const Call& call) const {
  const std::uint64_t most = gpu_piece(collective_of(call.form), member_->rank_count(), call.element) * call.element;
  return (call.rows[0].bytes + most - 1) / most;
}

void Relay::launch(Calls calls) {
  Engine& engine = *member_->engine();
  std::lock_guard in_order(order_);
  for (const auto& call : calls)
    if (call->straight.empty()) call->way = way_of(*call);
  std::vector<std::shared_ptr<Call>> taken;
  {
    auto held = engine.lock();
    for (const auto& call : calls) {
      if (Status status = number(call); status.ok())
        taken.push_back(call);
      else
        engine.complete(*call->all, status);
    }
    if (std::any_of(calls.begin(), calls.end(), is_kernel)) engine.nudge();
  }
  const Status status = taken.empty() ? Status() : enqueue(taken);
  if (status.ok()) return engine.run_callbacks();
  const Status cause(status.code(),
                     fmt::format("{} on a stream of {}: {}", name_of(collective_of(taken[0]->form)),
                                 device_->describe(), status.text()),
                     member_->rank());
  {
    auto held = engine.lock();
    engine.fail(*member_, cause);
    engine.nudge();
  }
  engine.run_callbacks();
}

// Behind all of its kernels. The stream keeps this object until then.
void Relay::leave() {
  const std::lock_guard in_order(order_);
  if (!peers_) return;
  auto keep = std::make_unique<Keep>(Keep{shared_from_this()});
  if (any_ && !device_->wait(peers_->stream(), last_).ok()) return;
  peers_->leave();
  (void)device_->call(peers_->stream(), &let_go, keep.get());
  (void)keep.release();
}

// --- what the streams say ---

void Relay::arrived(void* lane) {
  Lane& of = *static_cast<Lane*>(lane);
  std::atomic_ref(*of.arrived).fetch_add(1, std::memory_order_release);
  of.relay->alarm();
}

void Relay::entered(void* self) {
  Relay& relay = *static_cast<Relay*>(self);
  relay.entered_.fetch_add(1);
  relay.alarm();
}

void Relay::passed(void* keeps) {
  const std::unique_ptr<Keep> keep(static_cast<Keep*>(keeps));
  Relay& relay = *keep->relay;
  if (keep->manifest) {
    keep->manifest->in_use.store(false, std::memory_order_release);
    relay.left_.fetch_add(1);
  }
  relay.passed_.fetch_add(keep->calls, std::memory_order_release);
  relay.alarm();
}

void Relay::let_go(void* keeps) { delete static_cast<Keep*>(keeps); }

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
  unfinished_.clear();
  for (const auto& [key, lane] : lanes_) {
    std::atomic_ref(*lane->done).store(lane->last, std::memory_order_release);
    lane->running.clear();
    lane->calls.clear();
  }
}

}  // namespace tutti::comm
