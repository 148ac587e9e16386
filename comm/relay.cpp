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

bool sends(const Form& form) { return std::holds_alternative<Send>(form); }
bool is_kernel(const std::shared_ptr<Relay::Call>& call) { return call->kernel != 0; }

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
  auto memory = device_->allocate_pinned(kSlots * lane->slot_bytes + 2 * kLine + kSlots * Passage::kRemarkBytes);
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
  if (!beside_) {
    auto opened = device_->open_stream();
    if (!opened) return opened.status();
    beside_ = *opened;
  }
  if (way.program) {
    if (const std::uint64_t bytes = scratch_bytes_of(*way.program, call.checked.binding); bytes > 0) {
      auto taken = take(asides_, bytes);
      if (!taken) return taken.status();
      call.aside = {(*taken)->memory, [m = *taken](std::byte*) { m->in_use.store(false, std::memory_order_release); }};
      (void)transport::add_range((*taken)->memory, (*taken)->bytes, true);
    }
    call.straight = {straight_stage(call.checked, way.program, call.aside.get())};
  } else {
    if (!area_) {
      auto made = area_of(device_);
      if (!made) return made.status();
      area_ = *made;
      note(area_, StraightReduction::kArea);
    }
    call.straight = straight_stages(call.checked, member_->rank(), member_->rank_count(), way.reduction, area_);
  }
  p.slices = std::uint32_t(call.straight.size());
  return {};
}

// Memory of the host is none of the GPU's. Whenever an allocation is met for the first time, those that are gone are let go.
void Relay::note(const std::byte* data, std::uint64_t bytes) {
  const auto whole = allocation_of(*device_, data, bytes);
  if (!whole || !transport::note_gpu_range(whole->data, whole->bytes, device_.get(), whole->number)) return;
  for (const transport::Range& range : transport::ranges_of_gpu(device_.get())) {
    const auto now = allocation_of(*device_, range.data, range.bytes);
    if (!now || now->data != range.data || now->bytes != range.bytes || now->number != range.allocation) (void)transport::drop_range(range.data);
  }
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

// --- on the stream ---

// What is on a stream knows this object, its slots and a manifest, so the stream keeps them until it has passed, also behind
// a failure.
Status Relay::enqueue(Calls calls) {
  const StreamHandle stream = calls[0]->stream;
  const bool kernels = std::any_of(calls.begin(), calls.end(), is_kernel), alone = calls.size() == 1 && calls[0]->lane;
  const StreamHandle told_on = kernels ? peers_->stream() : stream;
  auto keep = std::make_unique<Keep>(Keep{shared_from_this(), std::uint32_t(calls.size())});
  for (const auto& call : calls)
    if (call->aside) keep->asides.push_back(call->aside);
  Status status;
  if (any_ && stream != last_stream_) status = device_->wait(stream, last_);
  if (status.ok()) status = alone ? enqueue_alone(*calls[0]) : enqueue_group(calls, *keep);
  any_ = true;
  last_stream_ = stream;
  const auto then = [&](Status next) { status = status.ok() ? std::move(next) : status; };
  then(device_->record(stream, last_));
  if (kernels) then(device_->wait(told_on, last_));
  then(device_->call(told_on, status.ok() ? &passed : &let_go, keep.get()));
  (void)keep.release();  // the stream's; where it does not even take that, for ever
  std::vector<StreamHandle> seen{stream};
  for (const auto& call : calls) {
    if (std::find(seen.begin(), seen.end(), call->stream) != seen.end()) continue;
    seen.push_back(call->stream);
    then(device_->wait(call->stream, last_));
  }
  return status;
}

// Rows are those of the passage: what goes in is put before the others, what comes out is taken from them.
SharedExchange Relay::exchange_of(const Call& call) const {
  const Passage& p = call.passage;
  const Collective what = collective_of(call.form);
  SharedExchange e;
  e.reduces = algorithms::is_reduction(what);
  e.two_shot = call.way == GpuWay::two_shot && what == Collective::all_reduce;
  e.type = call.checked.call.type, e.op = call.checked.call.op, e.factor = call.checked.factor, e.factor_on_device = p.remark;
  e.rank = peers_->rank(), e.ranks = peers_->rank_count();
  e.rows = int(p.in_end - p.in_begin);
  if (e.rows > 0) e.input = p.input + p.rows[p.in_begin].at;
  e.input_pitch = e.output_pitch = p.rows[0].bytes;
  const bool dealt = what == Collective::reduce_scatter || what == Collective::scatter || what == Collective::all_to_all;
  e.row = dealt ? e.rank : 0;
  if (p.out_begin != p.out_end) {
    const bool from_root = what == Collective::broadcast || what == Collective::scatter;
    e.output = p.output + p.rows[p.out_begin].at;
    e.from = from_root ? call.checked.call.root : 0;
    e.until = from_root ? e.from + 1 : e.ranks;
  }
  for (int r = 0; r < e.ranks; ++r) e.areas[r] = peers_->area(r);
  e.half = kGpuPiece;
  e.call = pack(call.all->call), e.words = &peers_->words();
  return e;
}

Status Relay::enqueue_kernels(const Call& call) {
  SharedExchange piece = exchange_of(call);
  const std::uint64_t row = call.rows[0].bytes;
  const std::uint64_t most = gpu_piece(collective_of(call.form), piece.ranks, call.element) * call.element;
  piece.number = call.kernel;
  for (std::uint64_t done = 0; done < row; done += most, ++piece.number) {
    const std::uint64_t bytes = std::min(most, row - done);
    piece.count = bytes / call.element;
    piece.blocks = gpu_blocks(bytes * call.passage.row_count);
    piece.meeting = meeting_;
    meeting_ += SharedExchange::meetings(piece.two_shot);
    if (Status s = device_->exchange(call.on, piece); !s.ok()) return s;
    if (piece.input) piece.input += bytes;
    if (piece.output) piece.output += bytes;
  }
  return {};
}

Status Relay::enqueue_slices(const Call& call) {
  const std::uint32_t slices = call.passage.slices;
  for (std::uint32_t k = 0; k < slices + kSlots; ++k) {
    if (k >= kSlots && k - kSlots < slices)
      if (Status s = enqueue_out(call, k - kSlots); !s.ok()) return s;
    if (k < slices)
      if (Status s = enqueue_in(call, k); !s.ok()) return s;
  }
  return {};
}

Status Relay::enqueue_alone(const Call& call) {
  if (!call.straight.empty()) return enqueue_straight(call);
  return call.kernel != 0 ? enqueue_kernels(call) : enqueue_slices(call);
}

Status Relay::enqueue_straight(const Call& call) {
  const auto stages = std::uint32_t(call.straight.size());
  std::uint32_t out = 0;
  for (std::uint32_t in = 0; in < stages; ++in) {
    for (; out < in && out + 1 + call.straight[out].ahead <= in; ++out)
      if (Status s = enqueue_straight_out(call, out); !s.ok()) return s;
    if (Status s = enqueue_straight_in(call, in); !s.ok()) return s;
  }
  for (; out < stages; ++out)
    if (Status s = enqueue_straight_out(call, out); !s.ok()) return s;
  return {};
}

Status Relay::enqueue_straight_in(const Call& call, std::uint32_t stage) {
  for (const auto& copy : call.straight[stage].before)
    if (Status s = device_->copy(call.on, copy.to, copy.from, {copy.bytes}); !s.ok()) return s;
  return device_->call(call.on, &arrived, call.lane);
}

Status Relay::enqueue_straight_out(const Call& call, std::uint32_t stage) {
  if (Status s = device_->await(call.on, call.passage.done, call.passage.first + stage); !s.ok()) return s;
  for (const auto& copy : call.straight[stage].after)
    if (Status s = device_->copy(call.on, copy.to, copy.from, {copy.bytes}); !s.ok()) return s;
  return call.straight[stage].adds ? device_->reduce(call.on, *call.straight[stage].adds) : Status();
}

Status Relay::copy_rows(const Call& call, std::uint32_t slice, bool in) {
  const Passage& p = call.passage;
  const std::uint32_t begin = in ? p.in_begin : p.out_begin, end = in ? p.in_end : p.out_end;
  std::byte* at = p.slot(slice) + p.offset(begin, slice);
  const std::uint32_t together = call.uniform ? end - begin : 1;
  for (std::uint32_t r = begin; r < end; r += together) {
    const std::uint64_t bytes = p.bytes(r, slice), whole = p.rows[r].bytes, shift = p.rows[r].at + slice * p.each;
    if (bytes == 0) continue;
    const Status copied = in ? device_->copy(call.on, at, p.input + shift, {bytes, together, bytes, whole})
                             : device_->copy(call.on, p.output + shift, at, {bytes, together, whole, bytes});
    if (!copied.ok()) return copied;
    at += bytes * together;
  }
  return {};
}

Status Relay::enqueue_in(const Call& call, std::uint32_t slice) {
  const Passage& p = call.passage;
  if (p.remark)
    if (Status s = device_->copy(call.on, p.remark_of(slice), p.remark, {p.remark_bytes}); !s.ok()) return s;
  if (Status s = copy_rows(call, slice, true); !s.ok()) return s;
  return device_->call(call.on, &arrived, call.lane);
}

Status Relay::enqueue_out(const Call& call, std::uint32_t slice) {
  if (Status s = device_->await(call.on, call.passage.done, call.passage.first + slice); !s.ok()) return s;
  return copy_rows(call, slice, false);
}

Status Relay::enqueue_group(Calls calls, Keep& keep) {
  const StreamHandle stream = calls[0]->stream;
  std::vector<StreamHandle> seen{stream};
  for (const auto& call : calls) {
    if (std::find(seen.begin(), seen.end(), call->stream) != seen.end()) continue;
    seen.push_back(call->stream);
    if (Status s = device_->record(call->stream, joining_); !s.ok()) return s;
    if (Status s = device_->wait(stream, joining_); !s.ok()) return s;
  }
  if (Status s = copy_to_self(calls, stream); !s.ok()) return s;
  std::vector<std::shared_ptr<Call>> pairs, collectives, all, straight_pairs, straight;
  for (const auto& call : calls) {
    if (!call->lane) continue;
    call->on = stream;
    const bool pair = peer_of(call->form) >= 0;
    if (!call->straight.empty()) {
      (pair ? straight_pairs : straight).push_back(call);
    } else {
      all.push_back(call);
      (pair ? pairs : collectives).push_back(call);
    }
  }
  if (std::any_of(calls.begin(), calls.end(), is_kernel)) return enqueue_beside(pairs, collectives, stream, keep);
  if (!straight.empty()) {
    if (Status s = follow(beside_, stream); !s.ok()) return s;
    for (const auto& call : straight) {
      call->on = beside_;
      if (Status s = enqueue_straight(*call); !s.ok()) return s;
    }
  }
  for (const auto& call : straight_pairs)
    if (Status s = enqueue_straight_in(*call, 0); !s.ok()) return s;
  if (Status s = all.empty() ? Status() : carry(all, stream, keep); !s.ok()) return s;
  for (const auto& call : straight_pairs)
    if (Status s = enqueue_straight_out(*call, 0); !s.ok()) return s;
  return straight.empty() ? Status() : follow(stream, beside_);
}

Status Relay::follow(StreamHandle later, StreamHandle earlier) {
  const Status recorded = device_->record(earlier, joining_);
  return recorded.ok() ? device_->wait(later, joining_) : recorded;
}

// The collectives in their order on the stream, sends and receives meanwhile on another.
Status Relay::enqueue_beside(Calls pairs, Calls collectives, StreamHandle stream, Keep& keep) {
  const StreamHandle beside = peers_->stream();
  if (!pairs.empty()) {
    if (Status s = follow(beside, stream); !s.ok()) return s;
    if (Status s = carry(pairs, beside, keep); !s.ok()) return s;
  }
  for (const auto& call : collectives)
    if (Status s = enqueue_alone(*call); !s.ok()) return s;
  return pairs.empty() ? Status() : follow(stream, beside);
}

Status Relay::carry(Calls calls, StreamHandle stream, Keep& keep) {
  const auto carriage = write_manifest(calls, keep);
  if (!carriage) return carriage.status();
  if (Status s = device_->call(stream, &entered, this); !s.ok()) return s;
  return device_->carry(stream, *carriage);
}

// The k-th send to oneself meets the k-th receive; Member has seen to it that there are as many.
Status Relay::copy_to_self(Calls calls, StreamHandle stream) {
  std::deque<const Call*> waiting;
  for (const auto& call : calls) {
    if (call->lane) continue;
    if (waiting.empty() || sends(waiting.front()->form) == sends(call->form)) {
      waiting.push_back(call.get());
      continue;
    }
    const Call& other = *waiting.front();
    waiting.pop_front();
    const Passage &from = sends(call->form) ? call->passage : other.passage, &to = sends(call->form) ? other.passage : call->passage;
    const std::uint64_t bytes = from.rows[0].bytes;
    if (bytes == 0 || from.input == to.output) continue;
    if (Status s = device_->copy(stream, to.output, from.input, {bytes}); !s.ok()) return s;
  }
  return {};
}

Result<Carriage> Relay::write_manifest(Calls calls, Keep& keep) {
  std::map<const Lane*, std::vector<const Call*>> lanes;
  std::size_t rows = 0, passages = 0;
  for (const auto& call : calls) {
    lanes[call->lane].push_back(call.get());
    rows += call->rows.size();
    ++passages;
  }
  static_assert(sizeof(Passage) % alignof(Row) == 0);
  const std::size_t rows_at = passages * sizeof(Passage), lanes_at = rows_at + rows * sizeof(Row);
  auto taken = manifest(lanes_at + (lanes.size() + 1) * sizeof(std::uint32_t));
  if (!taken) return taken.status();
  keep.manifest = *taken;
  auto* passage = reinterpret_cast<Passage*>((*taken)->memory);
  auto* row = reinterpret_cast<Row*>((*taken)->memory + rows_at);
  auto* border = reinterpret_cast<std::uint32_t*>((*taken)->memory + lanes_at);
  const Carriage carriage{passage, border, std::uint32_t(lanes.size())};
  for (const auto& [lane, of_lane] : lanes) {
    *border++ = std::uint32_t(passage - carriage.passages);
    for (const Call* call : of_lane) {
      *passage = call->passage;
      passage++->rows = row;
      row = std::copy(call->rows.begin(), call->rows.end(), row);
    }
  }
  *border = std::uint32_t(passages);
  return carriage;
}

Result<Relay::Manifest*> Relay::manifest(std::size_t bytes) {
  auto taken = take(manifests_, bytes);
  if (!taken) return taken.status();
  return taken->get();
}

Result<std::shared_ptr<Relay::Manifest>> Relay::take(std::vector<std::shared_ptr<Manifest>>& from, std::size_t bytes) {
  for (const auto& manifest : from)
    if (manifest->bytes >= bytes && !manifest->in_use.exchange(true, std::memory_order_acquire)) return manifest;
  constexpr std::size_t kLeast = 16 << 10;
  bytes = std::max(bytes * 2, kLeast);
  auto memory = device_->allocate_pinned(bytes);
  if (!memory) return memory.status();
  from.push_back(std::make_shared<Manifest>(*memory, bytes));
  return from.back();
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
