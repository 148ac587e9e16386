#include "comm/brief.h"

#include <algorithm>
#include <array>

#include "core/copy.h"
#include "kernels/kernels.h"

namespace tutti::comm {

using algorithms::Chunks;
using algorithms::Space;
using algorithms::Step;
using algorithms::StepKind;
using transport::SegmentHeader;

namespace {

bool receives(const Step& step) { return step.kind == StepKind::recv || step.kind == StepKind::recv_reduce; }

// The only message between two ranks in its direction.
SegmentHeader header_of(const Binding& binding, std::uint64_t bytes) {
  SegmentHeader header = binding.header;
  header.bytes = std::uint32_t(bytes);
  header.message_bytes = bytes;
  header.first = true;
  return header;
}

}  // namespace

std::unique_ptr<Brief> Brief::of(std::shared_ptr<const Program> program, const Binding& shape) {
  std::unique_ptr<Brief> brief(new Brief(std::move(program)));
  return brief->lay_out(shape) ? std::move(brief) : nullptr;
}

bool Brief::lay_out(const Binding& shape) {
  if (!shape.in.counts.empty() || !shape.out.counts.empty()) return false;
  Layout layout;
  layout.bind(*program_, size_of(shape.type), shape.vector, shape.in, shape.out);
  if (layout.scratch_bytes() > kMostBytes) return false;
  scratch_.resize(layout.scratch_bytes());
  const auto place = [&](const Chunks& chunks) {
    const Extent e = layout.extent(chunks);
    return Place{chunks.space, e.offset, e.bytes};
  };
  for (std::uint32_t i = 0; i < program_->steps.size(); ++i) {
    const ProgramStep& p = program_->steps[i];
    Part part;
    part.step = i;
    part.sender = std::uint32_t(senders_.size());
    if (p.step.source.count) part.source = place(p.step.source);
    if (p.step.target.count && p.step.kind != StepKind::send) part.target = place(p.step.target);
    const std::uint64_t bytes = std::max(part.source.bytes, part.target.bytes);
    if (bytes == 0) continue;                        // as an Execution skips it
    const bool heavy = bytes > kMostBytes || (bytes > kAnyNumber && bytes * p.step.peers.size() > kMostBytes);
    if (heavy || (shape.segment_limit && bytes > shape.segment_limit) || p.step.kind == StepKind::reduce) return false;
    if (!p.step.peers.empty()) largest_ = std::max(largest_, bytes);
    const bool waits = std::any_of(p.after.begin(), p.after.end(),
                                   [&](const Dependency& d) { return receives(program_->steps[d.step].step); });
    if (std::any_of(p.message.begin(), p.message.end(), [](std::uint32_t number) { return number != 0; })) return false;
    if (waits && p.step.kind != StepKind::copy) return false;
    if (p.step.peers.size() >= kernels::kMaxInputs) return false;
    moved_ += bytes * std::max<std::size_t>(p.step.peers.size(), 1);
    if (!receives(p.step)) {
      // What follows a copy that waits would have to wait, too.
      (waits || !after_.empty() ? after_ : before_).push_back(part);
      if (!after_.empty() && p.step.kind == StepKind::send) return false;
      continue;
    }
    if (!after_.empty()) return false;
    senders_.insert(senders_.end(), p.step.peers.begin(), p.step.peers.end());
    message_bytes_.resize(senders_.size(), bytes);
    receives_.push_back(part);
  }
  arrived_.resize(senders_.size());
  return true;
}

bool Brief::fits(std::span<const Wire> wires) const {
  return std::all_of(program_->peers.begin(), program_->peers.end(), [&](int peer) {
    const auto* connection = wires[std::size_t(peer)].connection;
    return connection && connection->glance_bytes() >= largest_;
  });
}

std::byte* Brief::at(const Place& place, const Binding& binding) const {
  switch (place.space) {
    // No step writes to the input unless it is the output, too (proved by the checker).
    case Space::input: return const_cast<std::byte*>(binding.input) + place.offset;
    case Space::output: return binding.output + place.offset;
    case Space::scratch: break;
  }
  return scratch_.data() + place.offset;
}

void Brief::local(const Part& part, const Binding& binding) const {
  std::byte* out = at(part.target, binding);
  const std::byte* in = at(part.source, binding);
  if (out != in) copy_bytes(out, in, part.target.bytes);
}

void Brief::begin() {
  std::fill(arrived_.begin(), arrived_.end(), nullptr);
  sent_part_ = sent_peers_ = 0;
}

bool Brief::send(std::span<const Wire> wires, const Binding& binding) {
  for (; sent_part_ < before_.size(); ++sent_part_) {
    const Part& part = before_[sent_part_];
    const Step& s = step(part);
    if (s.kind == StepKind::copy) {
      local(part, binding);
      continue;
    }
    const SegmentHeader header = header_of(binding, part.source.bytes);
    const std::byte* data = at(part.source, binding);
    for (sent_peers_ = 0; sent_peers_ < s.peers.size(); ++sent_peers_)
      if (wires[std::size_t(s.peers[sent_peers_])].connection->send(header, data, 0) != transport::Sent::done)
        return false;
  }
  return true;
}

std::uint32_t Brief::sent_to(std::uint32_t index) const {
  for (std::uint32_t i = 0; i < before_.size(); ++i)
    if (before_[i].step == index)
      return i < sent_part_ ? std::uint32_t(step(before_[i]).peers.size()) : i == sent_part_ ? sent_peers_ : 0;
  return 0;
}

bool Brief::look(std::span<const Wire> wires, const Binding& binding) {
  bool all = true;
  for (std::size_t i = 0; i < senders_.size(); ++i) {
    if (!arrived_[i])
      arrived_[i] = wires[std::size_t(senders_[i])].connection->glance(header_of(binding, message_bytes_[i]));
    all &= arrived_[i] != nullptr;
  }
  return all;
}

void Brief::receive(const Part& part, const Binding& binding) const {
  const Step& s = step(part);
  std::byte* out = at(part.target, binding);
  const std::byte* const* came = &arrived_[part.sender];
  if (s.kind == StepKind::recv || (s.peers.size() == 1 && s.source.count == 0))
    return copy_bytes(out, *came, part.target.bytes);
  std::array<const std::byte*, kernels::kMaxInputs> inputs;
  std::size_t n = 0;
  bool own = s.source.count != 0;
  for (std::size_t k = 0; k < s.peers.size(); ++k) {
    if (own && program_->rank < s.peers[k]) {
      inputs[n++] = at(part.source, binding);
      own = false;
    }
    inputs[n++] = came[k];
  }
  if (own) inputs[n++] = at(part.source, binding);
  kernels::Finish finish;
  if (s.completes) finish.divide_by = binding.divide_by;
  kernels::reduce(binding.type, binding.op, out, {inputs.data(), n}, part.target.bytes / size_of(binding.type), finish);
}

void Brief::finish(std::span<const Wire> wires, const Binding& binding) {
  for (const Part& part : receives_) receive(part, binding);
  for (const Part& part : after_) local(part, binding);
  for (const int sender : senders_) wires[std::size_t(sender)].connection->take_glanced();
}

}  // namespace tutti::comm
