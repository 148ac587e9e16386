#include "comm/layout.h"

#include <algorithm>

namespace tutti::comm {
namespace {

constexpr std::uint64_t kAlignment = 64;   // chunks begin on cache lines of an aligned buffer

// Elements of one of `parts` nearly equal parts, in whole cache lines.
std::uint64_t part_of(std::uint64_t elements, std::uint64_t parts, std::uint64_t element_bytes) {
  const std::uint64_t unit = kAlignment / element_bytes;
  const std::uint64_t even = (elements + parts - 1) / parts;
  return (even + unit - 1) / unit * unit;
}

}  // namespace

bool Layout::cuts_vector() const {
  const Collective c = program_->request.collective;
  return c == Collective::all_reduce || c == Collective::reduce || c == Collective::broadcast ||
         c == Collective::send || c == Collective::recv;
}
bool Layout::full_input() const {
  const Collective c = program_->request.collective;
  return c == Collective::reduce_scatter || c == Collective::scatter || c == Collective::all_to_all;
}
bool Layout::full_output() const {
  const Collective c = program_->request.collective;
  return c == Collective::all_gather || c == Collective::gather || c == Collective::all_to_all;
}

Extent Layout::in_vector(std::uint64_t first, std::uint64_t count) const {
  const std::uint64_t begin = std::min(vector_, first * chunk_), end = std::min(vector_, (first + count) * chunk_);
  return {begin * element_, (end - begin) * element_};
}

Extent Layout::in_blocks(const Blocks& blocks, std::uint64_t first, std::uint64_t count) const {
  if (count == 0) return {};
  const std::uint64_t slices = program_->slices;
  const auto edge = [&](std::uint64_t shape) {
    const std::uint64_t block = shape / slices, elements = blocks.count(block);
    return blocks.offset(block) + std::min(elements, shape % slices * part_of(elements, slices, element_));
  };
  const std::uint64_t last = first + count - 1, block = last / slices, elements = blocks.count(block);
  const std::uint64_t begin = edge(first);
  const std::uint64_t end =
      blocks.offset(block) + std::min(elements, (last % slices + 1) * part_of(elements, slices, element_));
  return {begin * element_, (end - begin) * element_};
}

void Layout::bind(const Program& program, std::size_t element_bytes, std::uint64_t vector, const Blocks& in,
                  const Blocks& out) {
  program_ = &program;
  element_ = element_bytes;
  vector_ = vector;
  in_ = in;
  out_ = out;
  if (cuts_vector()) chunk_ = part_of(vector, std::uint64_t(program.blocks) * program.slices, element_);
  scratch_offset_.clear();
  if (program.scratch.empty()) return;
  scratch_offset_.push_back(0);
  for (std::uint32_t shape : program.scratch) scratch_offset_.push_back(scratch_offset_.back() + shape_bytes(shape));
}

std::uint64_t Layout::shape_bytes(std::uint32_t shape) const {
  if (cuts_vector()) return in_vector(shape, 1).bytes;
  if (program_->request.collective != Collective::all_to_all)
    return in_blocks(full_input() ? in_ : out_, shape, 1).bytes;
  const std::uint32_t slices = program_->slices, ranks = std::uint32_t(program_->request.rank_count);
  const std::uint32_t block = shape / slices, from = block / ranks, to = block % ranks, slice = shape % slices;
  if (to == std::uint32_t(program_->rank)) return in_blocks(out_, std::uint64_t(from) * slices + slice, 1).bytes;
  return in_blocks(in_, std::uint64_t(to) * slices + slice, 1).bytes;
}

Extent Layout::extent(const algorithms::Chunks& chunks) const {
  if (chunks.count == 0) return {};
  if (chunks.space == algorithms::Space::scratch) {
    const std::uint64_t begin = scratch_offset_[chunks.first];
    return {begin, scratch_offset_[chunks.first + chunks.count] - begin};
  }
  if (cuts_vector()) return in_vector(chunks.first, chunks.count);
  const bool input = chunks.space == algorithms::Space::input;
  const Blocks& blocks = full_input() && (input || !full_output()) ? in_ : out_;
  if (input ? full_input() : full_output()) return in_blocks(blocks, chunks.first, chunks.count);
  // The own block alone: its slices, counted from the block's begin.
  const std::uint64_t own = std::uint64_t(program_->rank) * program_->slices;
  Extent e = in_blocks(blocks, own + chunks.first, chunks.count);
  e.offset -= blocks.offset(std::uint64_t(program_->rank)) * element_;
  return e;
}

}  // namespace tutti::comm
