#include "comm/execution.h"

#include <algorithm>
#include <cstring>

#include "core/check.h"
#include "core/copy.h"
#include "core/no_memory.h"
#include "kernels/kernels.h"

namespace tutti::comm {

using algorithms::Chunks;
using algorithms::Space;
using algorithms::Step;
using algorithms::StepKind;
using transport::Readiness;
using transport::SegmentHeader;
using transport::Sent;

namespace {

constexpr std::uint64_t kMaxElement = 8;   // bytes of the largest element type

constexpr std::uint64_t kWhole = 8;   // bytes: segments hold whole elements of every type

bool receives(const Step& step) { return step.kind == StepKind::recv || step.kind == StepKind::recv_reduce; }

// Several operands that must lie side by side before the pass: all but a plain receive and a two-operand reduction.
bool combines(const Step& step) { return step.kind == StepKind::recv_reduce && step.peers.size() > 1; }

}  // namespace

Piece::Piece(const SegmentHeader& header, const std::byte* data, transport::Lease lease)
    : header_(header), leased_(lease.holder ? data : nullptr), elsewhere_(lease.holder && !data), lease_(lease) {
  if (leased_ || elsewhere_ || header.bytes == 0) return;
  if (header.bytes <= kSmall) std::memcpy(small_.data(), data, header.bytes);
  else large_.assign(data, data + header.bytes);
}

const std::byte* Piece::data() const {
  if (leased_ || elsewhere_) return leased_;
  return header_.bytes <= kSmall ? small_.data() : large_.data();
}

std::pair<std::byte*, std::uint64_t> Execution::place(const Chunks& chunks) {
  const Extent e = layout_.extent(chunks);
  if (e.bytes == 0) return {nullptr, 0};
  switch (chunks.space) {
    // The schedule never writes to the input unless it is the output too (proved by the checker).
    case Space::input: return {const_cast<std::byte*>(binding_.input) + e.offset, e.bytes};
    case Space::output: return {binding_.output + e.offset, e.bytes};
    case Space::scratch: return {(binding_.straight ? binding_.scratch : scratch_.data()) + e.offset, e.bytes};
  }
  return {nullptr, 0};
}

void Execution::bind(std::shared_ptr<const Program> program, const Binding& binding) {
  program_ = std::move(program);
  binding_ = binding;
  layout_.bind(*program_, size_of(binding.type), binding.vector, binding.in, binding.out);
  if (!binding.straight) grow(scratch_, layout_.scratch_bytes(), "results between its steps");
  states_.assign(program_->steps.size(), State{});
  early_.clear();
  on_way_.clear();
  free_.clear();
  blocked_.clear();
  work_.clear();
  moved_ = 0;
  oldest_ = false;
  wires_ = {};
  std::uint32_t slots = 0;
  for (std::size_t i = 0; i < states_.size(); ++i) {
    const Step& step = program_->steps[i].step;
    State& s = states_[i];
    if (step.source.count) std::tie(s.source, s.bytes) = place(step.source);
    if (step.target.count && step.kind != StepKind::send) std::tie(s.target, s.bytes) = place(step.target);
    s.slot = slots;
    if (receives(step)) slots += std::uint32_t(step.peers.size());
  }
  if (pieces_.size() < slots) pieces_.resize(slots);
}

void Execution::sent_before(std::uint32_t step, std::uint32_t peers) {
  if (peers == 0) return;
  states_[step].segment = states_[step].bytes;
  states_[step].cursor = peers;
}

void Execution::start(std::span<const Wire> wires) {
  wires_ = wires;
  unfinished_ = 0;
  for (std::uint32_t i = 0; i < states_.size(); ++i) {
    const bool by_stream = binding_.straight && program_->steps[i].step.kind == StepKind::copy;
    states_[i].finished = states_[i].bytes == 0 || by_stream;      // both ends skip messages without bytes
    unfinished_ += !states_[i].finished;
  }
  for (std::uint32_t i = 0; i < states_.size(); ++i)
    if (!states_[i].finished) advance(i);
}

// How far the earlier steps on the same memory have come, seen from where this one begins.
std::uint64_t Execution::allowed(std::uint32_t index) const {
  const State& later = states_[index];
  std::uint64_t limit = later.bytes;
  for (const Dependency& d : program_->steps[index].after) {
    const State& earlier = states_[d.step];
    if (earlier.finished) continue;
    const std::byte* reached = earlier.begin(d.earlier) + earlier.done;
    const std::byte* begin = later.begin(d.later);
    if (reached <= begin) return 0;
    limit = std::min(limit, std::uint64_t(reached - begin));
  }
  return limit;
}

void Execution::advance(std::uint32_t step) {
  work_.push_back(step);
  while (!work_.empty()) {
    const std::uint32_t next = work_.back();
    work_.pop_back();
    if (!run(next)) continue;
    for (const std::uint32_t later : program_->steps[next].before)
      if (!states_[later].finished) work_.push_back(later);
  }
}

// Moves a step as far as it can go. Returns whether steps that follow may see a difference.
bool Execution::run(std::uint32_t index) {
  State& s = states_[index];
  if (s.finished) return false;
  const Step& step = program_->steps[index].step;
  const std::uint64_t before = s.done, limit = allowed(index);
  if (limit == 0) return false;
  switch (step.kind) {
    case StepKind::send: run_send(index, limit); break;
    case StepKind::copy: case StepKind::reduce: run_local(index, limit); break;
    case StepKind::recv: case StepKind::recv_reduce:
      expect(index);
      if (combines(step)) run_combine(index, limit);
      else run_held(index, limit);
      break;
  }
  if (s.done == s.bytes) {
    s.finished = true;
    --unfinished_;
  }
  return s.done != before;
}

// Its peers may send; and what comes next from each of them may follow at once, although it cannot be used yet.
void Execution::expect(std::uint32_t index) {
  const ProgramStep& p = program_->steps[index];
  if (states_[index].expected > Readiness::ahead) return;
  const bool lands = p.step.kind == StepKind::recv && allowed(index) == states_[index].bytes;
  if (binding_.straight && !lands) return;      // nothing of it may come before it has its place
  if (!tell(index, lands ? Readiness::lands : Readiness::partly)) return block(index);
  for (std::size_t k = 0; k < p.step.peers.size(); ++k) {
    const auto& lane = program_->arrivals[std::size_t(p.step.peers[k])];
    if (p.message[k] + 1 >= lane.size()) continue;
    const std::uint32_t next = lane[p.message[k] + 1].step;
    if (states_[next].expected == Readiness::none && !states_[next].finished) tell(next, Readiness::ahead);
  }
}

// Not before all peers can be told: it is said once. False: one of them is not connected.
bool Execution::tell(std::uint32_t index, Readiness readiness) {
  State& s = states_[index];
  const ProgramStep& p = program_->steps[index];
  for (const int peer : p.step.peers)
    if (!wires_[std::size_t(peer)].connection) return false;
  for (std::size_t k = 0; k < p.step.peers.size(); ++k) {
    transport::Connection& connection = *wires_[std::size_t(p.step.peers[k])].connection;
    if (s.bytes <= connection.eager_bytes()) continue;
    SegmentHeader message = binding_.header;
    message.key.message = p.message[k];
    message.message_bytes = s.bytes;
    connection.expect(message, readiness, readiness == Readiness::lands ? s.target : nullptr);
  }
  s.expected = readiness;
  return true;
}

void Execution::block(std::uint32_t index) {
  if (states_[index].blocked) return;
  states_[index].blocked = true;
  blocked_.push_back(index);
}

bool Execution::retry() {
  if (blocked_.empty()) return false;
  const std::uint64_t before = moved_;
  std::vector<std::uint32_t> again;
  again.swap(blocked_);
  for (std::uint32_t i : again) states_[i].blocked = false;
  for (std::uint32_t i : again) advance(i);
  again.clear();
  if (blocked_.empty()) blocked_.swap(again);   // keep the capacity
  return moved_ != before;
}

// Whether the receiver of this message fetches it. Several share one copy in a slot.
bool Execution::lends(const Step& step, std::uint64_t bytes) const {
  if (!binding_.lending.includes(bytes) || binding_.straight || step.peers.size() != 1) return false;
  const Wire& wire = wires_[std::size_t(step.peers[0])];
  return wire.connection && wire.connection->lent_bytes() > 0 && bytes > wire.connection->glance_bytes();
}

// What all wires of a send can carry at once; 0: one of them is not there yet.
std::uint64_t Execution::segment_for(const Step& step, std::uint64_t bytes) const {
  std::uint64_t segment = binding_.segment_limit ? binding_.segment_limit : ~std::uint64_t(0);
  const bool lent = lends(step, bytes);
  for (const int peer : step.peers) {
    const Wire& wire = wires_[std::size_t(peer)];
    if (!wire.connection) return 0;
    segment = std::min<std::uint64_t>(segment, lent ? wire.connection->lent_bytes() : wire.transport->segment_bytes(bytes));
  }
  return segment;
}

void Execution::run_send(std::uint32_t index, std::uint64_t limit) {
  State& s = states_[index];
  const Step& step = program_->steps[index].step;
  while (s.submitted < s.bytes) {
    if (s.segment == 0) {
      std::uint64_t segment = segment_for(step, s.bytes);
      if (segment == 0) return block(index);
      // Elements stay whole, whatever TUTTI_SEGMENT says.
      if (segment < s.bytes - s.submitted)
        segment = std::max<std::uint64_t>(segment / kMaxElement * kMaxElement, kMaxElement);
      segment = std::max(kWhole, segment / kWhole * kWhole);
      segment = std::min(segment, s.bytes - s.submitted);
      if (s.submitted + segment > limit) break;             // wait until a whole segment is ready
      s.segment = segment;
      s.lends = lends(step, s.bytes);
    }
    if (!send_segment(index)) return block(index);
    s.submitted += s.segment;
    moved_ += s.segment;
    s.segment = 0;
    s.cursor = 0;
  }
  if (s.outstanding == 0) s.done = s.submitted;
}

// A segment that the wire may accept without being done with it.
std::uint32_t Execution::take_off(std::uint32_t step, const SegmentHeader& header) {
  if (free_.empty()) {
    free_.push_back(std::uint32_t(on_way_.size()));
    on_way_.emplace_back();
  }
  const std::uint32_t place = free_.back();
  free_.pop_back();
  on_way_[place] = {step, header.offset, header.bytes};
  return place;
}

// Gives the current segment to the peers that lack it. False: no room at one of them.
bool Execution::send_segment(std::uint32_t index) {
  State& s = states_[index];
  const ProgramStep& p = program_->steps[index];
  const std::uint32_t peer_count = std::uint32_t(p.step.peers.size());
  SegmentHeader header = binding_.header;
  header.bytes = std::uint32_t(s.segment);
  header.offset = s.submitted;
  header.message_bytes = s.bytes;
  header.lend = s.lends;
  const std::byte* data = s.source + s.submitted;
  for (; s.cursor < peer_count; ++s.cursor) {
    const Wire& wire = wires_[std::size_t(p.step.peers[s.cursor])];
    if (!wire.connection) return false;
    header.key.message = p.message[s.cursor];
    if (peer_count > 1 && s.staged == 0 && s.cursor == 0) {
      bool same = true;
      for (int peer : p.step.peers) same = same && wires_[std::size_t(peer)].transport == wire.transport;
      s.stage = wire.transport;
      s.staged = same && !wire.transport->in_place(header, data)
                     ? wire.transport->stage(data, header.bytes, int(peer_count))
                     : transport::Transport::kNoStage;
      if (s.staged == 0 && !oldest_) return false;
      if (s.staged == 0) s.staged = transport::Transport::kNoStage;   // a copy for each, in the room kept for its lane
    }
    const bool staged = peer_count > 1 && s.staged != 0 && s.staged != transport::Transport::kNoStage;
    header.first = oldest_ && !staged && first_on_lane(index, s.cursor);
    const std::uint32_t place = take_off(index, header);
    const Sent result = staged ? wire.connection->send_staged(header, s.staged)
                               : wire.connection->send(header, data, std::uint64_t(binding_.token) << 32 | place);
    if (result == Sent::pending) ++s.outstanding;
    else free_.push_back(place);
    if (result == Sent::again) return false;
    if (result == Sent::done && peer_count == 1) mark(index, header.offset, header.bytes);
  }
  s.staged = 0;
  return true;
}

bool Execution::first_on_lane(std::uint32_t index, std::uint32_t position) const {
  const int peer = program_->steps[index].step.peers[position];
  std::int32_t before = program_->steps[index].previous[position];
  while (before >= 0) {
    const State& s = states_[std::size_t(before)];
    if (!s.finished && (s.submitted < s.bytes || s.lends)) return false;      // what is lent may have to be sent after all
    const ProgramStep& p = program_->steps[std::size_t(before)];
    const auto at = std::find(p.step.peers.begin(), p.step.peers.end(), peer);
    before = p.previous[std::size_t(at - p.step.peers.begin())];
  }
  return true;
}

// What later steps may overwrite: up to the first segment that is still on its way; of a multicast, all that was given
// away once nothing is.
void Execution::sent(std::uint32_t segment) {
  const Early acknowledged = on_way_[segment];
  free_.push_back(segment);
  State& s = states_[acknowledged.step];
  TUTTI_CHECK(s.outstanding > 0);
  --s.outstanding;
  const std::uint64_t before = s.done;
  if (program_->steps[acknowledged.step].step.peers.size() == 1)
    mark(acknowledged.step, acknowledged.offset, acknowledged.bytes);
  else if (s.outstanding == 0) s.done = s.submitted;
  if (s.done != before) finish_if_done(acknowledged.step);
}

void Execution::run_local(std::uint32_t index, std::uint64_t limit) {
  State& s = states_[index];
  const Step& step = program_->steps[index].step;
  const std::uint64_t bytes = limit - s.done;
  std::byte* out = s.target + s.done;
  const std::byte* in = s.source + s.done;
  if (step.kind == StepKind::copy) {
    if (out != in) copy_bytes(out, in, bytes);
  } else {
    const std::array<const std::byte*, 2> inputs{out, in};
    reduce(out, inputs, bytes, step.completes);
  }
  s.done = limit;
  moved_ += bytes;
}

void Execution::reduce(std::byte* out, std::span<const std::byte* const> inputs, std::uint64_t bytes,
                       bool completes) const {
  kernels::Finish finish;
  if (completes) finish.divide_by = binding_.divide_by;
  const std::size_t count = bytes / size_of(binding_.type);
  if (inputs.size() <= kernels::kMaxInputs)
    return kernels::reduce(binding_.type, binding_.op, out, inputs, count, finish);
  // Wider than a pass: along the tree, strip by strip. Narrow floats would be rounded between the passes; the planner
  // does not choose so wide a pass for them.
  const std::uint32_t left = algorithms::tree_split(std::uint32_t(inputs.size()));
  std::vector<std::byte> a(bytes), b(bytes);
  reduce(a.data(), inputs.first(left), bytes, false);
  reduce(b.data(), inputs.subspan(left), bytes, false);
  const std::array<const std::byte*, 2> both{a.data(), b.data()};
  kernels::reduce(binding_.type, binding_.op, out, both, count, finish);
}

// One arrived segment of a step with one sender: into place, or combined with the own operand.
void Execution::apply(std::uint32_t index, const SegmentHeader& header, const std::byte* data, const transport::Lease& lease) {
  State& s = states_[index];
  const Step& step = program_->steps[index].step;
  std::byte* out = s.target + header.offset;
  if (!data && header.bytes > 0) {
    if (!lease.holder->fetch(lease.token, out, header.bytes)) return;
  } else if (step.kind == StepKind::recv || step.source.count == 0) {
    if (out != data) copy_bytes(out, data, header.bytes);
  } else {
    const std::byte* own = s.source + header.offset;
    std::array<const std::byte*, 2> inputs{own, data};
    if (step.peers[0] < program_->rank) std::swap(inputs[0], inputs[1]);
    reduce(out, inputs, header.bytes, step.completes);
  }
  moved_ += header.bytes;
  mark(index, header.offset, header.bytes);
}

void Execution::mark(std::uint32_t index, std::uint64_t offset, std::uint64_t bytes) {
  State& s = states_[index];
  if (offset != s.done) return early_.push_back({index, offset, bytes});
  s.done += bytes;
  for (std::size_t i = 0; i < early_.size();) {
    if (early_[i].step != index || early_[i].offset != s.done) {
      ++i;
      continue;
    }
    s.done += early_[i].bytes;
    early_[i] = early_.back();
    early_.pop_back();
    i = 0;
  }
}

void Execution::run_held(std::uint32_t index, std::uint64_t limit) {
  State& s = states_[index];
  std::vector<Piece>& held = pieces_[s.slot];
  for (std::size_t i = 0; i < held.size();) {
    if (held[i].end() > limit) {
      ++i;
      continue;
    }
    apply(index, held[i].header(), held[i].data(), held[i].lease());
    held[i].release();
    held.erase(held.begin() + std::ptrdiff_t(i));
  }
}

const Piece* Execution::piece_at(std::uint32_t slot, std::uint64_t offset) const {
  for (const Piece& p : pieces_[slot])
    if (p.header().offset <= offset && offset < p.end()) return &p;
  return nullptr;
}

void Execution::drop_pieces(std::uint32_t slot, std::uint64_t below) {
  std::vector<Piece>& held = pieces_[slot];
  for (std::size_t i = 0; i < held.size();) {
    if (held[i].end() > below) {
      ++i;
      continue;
    }
    held[i].release();
    held.erase(held.begin() + std::ptrdiff_t(i));
  }
}

// One pass over all operands, as far as every sender's bytes are there.
void Execution::run_combine(std::uint32_t index, std::uint64_t limit) {
  State& s = states_[index];
  const Step& step = program_->steps[index].step;
  const std::size_t peer_count = step.peers.size();
  std::array<const std::byte*, kernels::kMaxInputs + 1> few;
  std::vector<const std::byte*> many;
  std::span<const std::byte*> inputs(few);
  if (peer_count + 1 > few.size()) {
    many.resize(peer_count + 1);
    inputs = many;
  }
  while (s.done < limit) {
    std::uint64_t end = limit;
    std::size_t n = 0;
    bool own = step.source.count != 0;
    for (std::size_t k = 0; k < peer_count; ++k) {
      const Piece* piece = piece_at(s.slot + std::uint32_t(k), s.done);
      if (!piece) return;
      if (own && program_->rank < step.peers[k]) {
        inputs[n++] = s.source + s.done;
        own = false;
      }
      inputs[n++] = piece->data() + (s.done - piece->header().offset);
      end = std::min(end, piece->end());
    }
    if (own) inputs[n++] = s.source + s.done;
    reduce(s.target + s.done, inputs.first(n), end - s.done, step.completes);
    moved_ += end - s.done;
    s.done = end;
    for (std::size_t k = 0; k < peer_count; ++k) drop_pieces(s.slot + std::uint32_t(k), end);
  }
}

std::byte* Execution::landing(int peer, const SegmentHeader& header) const {
  const auto& lane = program_->arrivals[std::size_t(peer)];
  if (header.key.message >= lane.size()) return nullptr;
  const std::uint32_t index = lane[header.key.message].step;
  const State& s = states_[index];
  if (program_->steps[index].step.kind != StepKind::recv || s.bytes != header.message_bytes) return nullptr;
  const std::uint64_t end = header.offset + header.bytes;
  return end <= s.bytes && end <= allowed(index) ? s.target + header.offset : nullptr;
}

int Execution::step_of(int peer, const SegmentHeader& header) const {
  const auto& lane = program_->arrivals[std::size_t(peer)];
  return header.key.message < lane.size() ? int(lane[header.key.message].step) : -1;
}

Execution::Verdict Execution::arrived(int peer, const SegmentHeader& header, const std::byte* data,
                                      transport::Lease lease) {
  const auto& lane = program_->arrivals[std::size_t(peer)];
  const std::uint64_t end = header.offset + header.bytes;
  const Arrival arrival = header.key.message < lane.size() ? lane[header.key.message] : Arrival{};
  State& s = states_[arrival.step];
  const bool lent = !data && header.bytes > 0;       // those come to plain receives alone
  if (header.key.message >= lane.size() || s.finished || header.message_bytes != s.bytes || end > s.bytes ||
      header.offset < s.done || (lent && program_->steps[arrival.step].step.kind != StepKind::recv)) {
    lease.release();
    return Verdict::unexpected;
  }
  if (!combines(program_->steps[arrival.step].step) && end <= allowed(arrival.step)) {
    apply(arrival.step, header, data, lease);
    lease.release();
    finish_if_done(arrival.step);
    return Verdict::taken;
  }
  pieces_[s.slot + arrival.position].emplace_back(header, data, lease);
  advance(arrival.step);
  return Verdict::taken;
}

// After progress outside run(): closes the step and lets those behind it move.
void Execution::finish_if_done(std::uint32_t index) {
  State& s = states_[index];
  if (s.done == s.bytes && !s.finished) {
    s.finished = true;
    --unfinished_;
  }
  for (const std::uint32_t later : program_->steps[index].before)
    if (!states_[later].finished) advance(later);
}

void Execution::release() {
  for (auto& list : pieces_) {
    for (Piece& p : list) p.release();
    list.clear();
  }
  for (std::size_t i = 0; i < states_.size(); ++i) {
    State& s = states_[i];
    if (s.staged == 0 || s.staged == transport::Transport::kNoStage) continue;
    s.stage->unstage(s.staged, int(program_->steps[i].step.peers.size() - s.cursor));
    s.staged = 0;
  }
  unfinished_ = 0;
  blocked_.clear();
}

bool Execution::needs(int peer) const {
  for (std::uint32_t i = 0; i < states_.size(); ++i) {
    const auto& peers = program_->steps[i].step.peers;
    for (std::uint32_t k = 0; k < peers.size() && !states_[i].finished; ++k)
      if (peers[k] == peer && misses(i, k)) return true;
  }
  return false;
}

// Whether the message to or from the step's k-th peer is not over: bytes to come, to be sent, or to be acknowledged.
bool Execution::misses(std::uint32_t index, std::uint32_t position) const {
  const State& s = states_[index];
  if (program_->steps[index].step.kind == StepKind::send)
    return s.outstanding > 0 || s.submitted + (s.cursor > position ? s.segment : 0) < s.bytes;
  std::uint64_t have = s.done;
  for (const Early& e : early_)
    if (e.step == index) have += e.bytes;
  for (const Piece& p : pieces_[s.slot + position])
    if (p.data() || p.header().bytes == 0) have += p.end() - std::max(p.header().offset, s.done);      // else it is still with its sender
  return have < s.bytes;
}

std::size_t Execution::memory_bytes() const {
  std::size_t bytes = sizeof(Execution) + scratch_.capacity() + states_.capacity() * sizeof(State) +
                      pieces_.capacity() * sizeof(pieces_[0]);
  for (const auto& held : pieces_) bytes += held.capacity() * sizeof(Piece);
  return bytes;
}

std::vector<Stand> Execution::stands(std::size_t most) const {
  std::vector<Stand> out;
  for (std::uint32_t i = 0; i < states_.size(); ++i) {
    const State& s = states_[i];
    if (s.finished || allowed(i) == 0) continue;
    const Step& step = program_->steps[i].step;
    const bool sends = step.kind == StepKind::send;
    for (std::uint32_t k = 0; k < step.peers.size() && out.size() < most; ++k)
      if (misses(i, k))
        out.push_back({i, std::uint32_t(states_.size()), step.peers[k], sends,
                       (sends ? step.source : step.target).first, sends ? s.submitted : s.done, s.bytes});
  }
  return out;
}

std::vector<int> Execution::waits_for() const {
  std::vector<int> out;
  for (const Stand& stand : stands(states_.size() * wires_.size())) out.push_back(stand.peer);
  std::sort(out.begin(), out.end());
  out.erase(std::unique(out.begin(), out.end()), out.end());
  return out;
}

}  // namespace tutti::comm
