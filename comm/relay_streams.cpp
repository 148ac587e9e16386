// Relay on the users' streams: what is put on them for a call or a group, under the lock of the calls.
#include <algorithm>
#include <cstring>

#include "comm/engine.h"
#include "comm/member.h"
#include "comm/relay.h"
#include "core/no_memory.h"
#include "kernels/kernels.h"

namespace tutti::comm {

// What is on a stream knows this object, its slots and a manifest, so the stream keeps them until it has passed, also behind
// a failure.
Status Relay::enqueue(Calls calls) {
  const StreamHandle stream = calls[0]->stream;
  const bool kernels = std::any_of(calls.begin(), calls.end(), is_kernel), alone = calls.size() == 1 && calls[0]->lane;
  const StreamHandle told_on = kernels ? peers_->stream() : stream;
  auto keep = std::make_unique<Keep>(Keep{shared_from_this(), std::uint32_t(calls.size())});
  for (const auto& call : calls)
    if (!call->straight.empty()) keep->asides.push_back(call->aside ? call->aside : std::shared_ptr<std::byte>(straight_calls_, nullptr));
  Status status;
  if (any_ && stream != last_stream_) status = device_->wait(stream, last_);
  if (status.ok()) status = alone ? enqueue_alone(*calls[0]) : enqueue_group(calls, *keep);
  any_ = true;
  last_stream_ = stream;
  const auto then = [&](Status next) { status = status.ok() ? std::move(next) : status; };
  if (!status.ok() && beside_) (void)follow(stream, beside_);      // what is there knows this object, too
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
  if (const auto& adds = call.straight[stage].adds)
    if (Status s = device_->reduce(call.on, *adds); !s.ok()) return s;
  for (const auto& copy : call.straight[stage].after)
    if (Status s = device_->copy(call.on, copy.to, copy.from, {copy.bytes}); !s.ok()) return s;
  return {};
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
  if (Status s = straight.empty() ? Status() : follow(beside_, stream); !s.ok()) return s;
  for (const auto& call : straight_pairs)
    if (Status s = enqueue_straight_in(*call, 0); !s.ok()) return s;
  if (Status s = all.empty() ? Status() : carry(all, stream, keep); !s.ok()) return s;
  for (const auto& call : straight) {      // behind the sends: a full stream holds up whoever puts more on it
    call->on = beside_;
    if (Status s = enqueue_straight(*call); !s.ok()) return s;
  }
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
  auto memory = allocate_pinned(bytes);
  if (!memory) return memory.status();
  from.push_back(std::make_shared<Manifest>(*memory, bytes));
  return from.back();
}

}  // namespace tutti::comm
