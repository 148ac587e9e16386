#pragma once
// Passage: a call's way through slots of pinned memory, in slices. Its buffers are rows; slice k has of each row the bytes
// from k * each on, `each` at most, in its slot one row behind another. Slices are numbered along a lane, which has
// kSlots slots and two words of the host's: the GPU says in `arrived` up to which number slices lie in their slots, the
// host in `done` up to which they may be taken out. A slot is filled again when its slice has been taken out.
#include <cstddef>
#include <cstdint>

namespace tutti {

struct Row {
  std::uint64_t at = 0, bytes = 0;  // where it begins in its buffer
};

struct Passage {
  static constexpr std::uint32_t kSlots = 4;
  const std::byte* input = nullptr;  // rows count from here
  std::byte* output = nullptr;
  const Row* rows = nullptr;
  std::uint32_t row_count = 0, in_begin = 0, in_end = 0, out_begin = 0, out_end = 0;  // which go in, which come out
  std::uint64_t each = 0;
  std::uint32_t first = 0, slices = 1;  // number of the first
  std::byte* slots = nullptr;
  std::uint64_t slot_bytes = 0;
  std::uint32_t *arrived = nullptr, *done = nullptr;
  // Not null: so many bytes that the host wants to see with each slice; then beside its slot.
  const std::byte* remark = nullptr;
  std::uint64_t remark_bytes = 0;
  std::byte* remarks = nullptr;
  static constexpr std::uint64_t kRemarkBytes = 16;

  constexpr std::uint64_t bytes(std::uint32_t row, std::uint32_t slice) const {
    const std::uint64_t before = slice * each, all = rows[row].bytes;
    return all <= before ? 0 : all - before < each ? all - before : each;
  }
  constexpr std::uint64_t offset(std::uint32_t row, std::uint32_t slice) const {  // in the slot
    std::uint64_t sum = 0;
    for (std::uint32_t r = 0; r < row; ++r) sum += bytes(r, slice);
    return sum;
  }
  constexpr std::byte* slot(std::uint32_t slice) const { return slots + (first + slice) % kSlots * slot_bytes; }
  constexpr std::byte* remark_of(std::uint32_t slice) const { return remarks + (first + slice) % kSlots * kRemarkBytes; }
};

// Passages that go on at once, whichever comes first: those of lane k are [lanes[k], lanes[k + 1]), one after the other.
// All of it lies in pinned memory.
struct Carriage {
  const Passage* passages = nullptr;
  const std::uint32_t* lanes = nullptr;
  std::uint32_t lane_count = 0;
};

}  // namespace tutti
