#pragma once
// Carry: takes the slices of several passages (core/passage.h) into their slots and out again, each as soon as its lane
// allows. A block looks after its lanes in turn, so none waits for another; the host is at the other end.
#include <core/passage.h>
#include <kernels/cuda/move.h>

namespace tutti::kernels::cuda {

inline constexpr std::size_t kLanesOfBlock = 16, kCarryBlocks = 64;

struct Carry {
  using Arguments = Carriage;

  template <class Thread>
  TUTTI_ANYWHERE void operator()(const Arguments& a, Thread& thread) const {
    const std::size_t blocks = thread.count() / thread.block_size();
    State states[kLanesOfBlock];
    std::size_t lanes = 0;
    for (std::size_t l = thread.block(); l < a.lane_count; l += blocks) states[lanes++] = {a.lanes[l], a.lanes[l + 1]};
    for (bool open = true; open;) {
      open = false;
      bool moved = false;
      for (std::size_t i = 0; i < lanes; ++i) {
        if (states[i].passage == states[i].end) continue;
        open = true;
        moved |= step(a.passages[states[i].passage], states[i], thread);
      }
      if (open && !moved) thread.pause();
    }
  }

 private:
  struct State {
    std::uint32_t passage = 0, end = 0, in = 0, out = 0;  // slices of it that are in their slots, and out again
  };

  // All threads of the block come to the same answer.
  template <class Thread>
  static TUTTI_ANYWHERE bool step(const Passage& p, State& s, Thread& thread) {
    const bool speaks = thread.in_block() == 0;
    if (s.in < p.slices && s.in < s.out + Passage::kSlots) {
      take_in(p, s.in, thread);
      thread.sync();
      if (speaks) thread.release(p.arrived, p.first + s.in);
      ++s.in;
      return true;
    }
    if (!thread.any(speaks && std::int32_t(thread.acquire(p.done) - (p.first + s.out)) >= 0)) return false;
    take_out(p, s.out, thread);
    thread.sync();
    if (++s.out == p.slices) s = {s.passage + 1, s.end};
    return true;
  }

  template <class Thread>
  static TUTTI_ANYWHERE void take_in(const Passage& p, std::uint32_t slice, Thread& thread) {
    if (p.remark) copy(p.remark_of(slice), p.remark, p.remark_bytes, thread);
    std::byte* to = p.slot(slice) + p.offset(p.in_begin, slice);
    for (std::uint32_t r = p.in_begin; r < p.in_end; to += p.bytes(r++, slice))
      copy(to, p.input + p.rows[r].at + slice * p.each, p.bytes(r, slice), thread);
  }
  template <class Thread>
  static TUTTI_ANYWHERE void take_out(const Passage& p, std::uint32_t slice, Thread& thread) {
    const std::byte* from = p.slot(slice) + p.offset(p.out_begin, slice);
    for (std::uint32_t r = p.out_begin; r < p.out_end; from += p.bytes(r++, slice))
      copy(p.output + p.rows[r].at + slice * p.each, from, p.bytes(r, slice), thread);
  }

  template <class Thread>
  static TUTTI_ANYWHERE void copy(std::byte* to, const std::byte* from, std::size_t bytes, Thread& thread) {
    move_bytes(to, from, bytes, thread.in_block(), thread.block_size());
  }
};

int launch_carry(int blocks, void* stream, const Carriage& carriage);

}  // namespace tutti::kernels::cuda
