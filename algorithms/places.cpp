#include "algorithms/places.h"

namespace tutti::algorithms {
namespace {

// How one buffer of one rank maps to shapes: chunk i has the shape first + (i / slices) * stride * slices + i % slices.
struct Buffer {
  std::uint32_t blocks = 0, first = 0, stride = 1;
};

Buffer input_of(const Request& request, std::uint32_t rank, std::uint32_t blocks) {
  const bool root = int(rank) == request.root;
  switch (request.collective) {
    case Collective::all_reduce:
    case Collective::reduce:
    case Collective::reduce_scatter: return {blocks, 0, 1};
    case Collective::broadcast:
    case Collective::scatter: return {root ? blocks : 0, 0, 1};
    case Collective::all_gather:
    case Collective::gather: return {1, rank, 1};
    case Collective::all_to_all:
      return {std::uint32_t(request.rank_count), rank * std::uint32_t(request.rank_count), 1};
    default: return {};
  }
}

Buffer output_of(const Request& request, std::uint32_t rank, std::uint32_t blocks) {
  const bool root = int(rank) == request.root;
  switch (request.collective) {
    case Collective::all_reduce:
    case Collective::broadcast:
    case Collective::all_gather: return {blocks, 0, 1};
    case Collective::reduce:
    case Collective::gather: return {root ? blocks : 0, 0, 1};
    case Collective::reduce_scatter:
    case Collective::scatter: return {1, rank, 1};
    case Collective::all_to_all: return {std::uint32_t(request.rank_count), rank, std::uint32_t(request.rank_count)};
    default: return {};
  }
}

void append_shapes(const Buffer& buffer, std::uint32_t slices, std::vector<std::uint32_t>& shapes) {
  for (std::uint32_t block = 0; block < buffer.blocks; ++block) {
    for (std::uint32_t slice = 0; slice < slices; ++slice) {
      shapes.push_back((buffer.first + block * buffer.stride) * slices + slice);
    }
  }
}

}  // namespace

Places::Places(const Request& request, bool in_place, int rank, const Schedule& schedule) {
  const std::uint32_t slices = schedule.slices, own = std::uint32_t(rank) * slices;
  const Buffer in = input_of(request, std::uint32_t(rank), schedule.blocks);
  const Buffer out = output_of(request, std::uint32_t(rank), schedule.blocks);
  append_shapes(out, slices, shapes_);
  append_shapes(in, slices, shapes_);
  shapes_.insert(shapes_.end(), schedule.scratch.begin(), schedule.scratch.end());
  inputs_ = in.blocks * slices;
  outputs_ = out.blocks * slices;
  if (!in_place || inputs_ == 0 || outputs_ == 0) return;
  switch (request.collective) {
    case Collective::reduce_scatter:
    case Collective::scatter:
      alias_first_ = own;
      alias_count_ = slices;
      break;
    case Collective::all_gather:
    case Collective::gather:
      alias_output_ = own;
      alias_count_ = slices;
      break;
    default: alias_count_ = outputs_; break;
  }
}

std::uint32_t Places::at(Space space, std::uint32_t index) const {
  switch (space) {
    case Space::output: return index < outputs_ ? index : kNone;
    case Space::input:
      if (index >= inputs_) return kNone;
      if (index >= alias_first_ && index - alias_first_ < alias_count_) return alias_output_ + index - alias_first_;
      return outputs_ + index;
    case Space::scratch: return index < count() - outputs_ - inputs_ ? outputs_ + inputs_ + index : kNone;
  }
  return kNone;
}

std::uint32_t Places::shape(Space space, std::uint32_t index) const {
  switch (space) {
    case Space::output: return shapes_[index];
    case Space::input: return shapes_[outputs_ + index];
    case Space::scratch: return shapes_[outputs_ + inputs_ + index];
  }
  return kNone;
}

std::uint32_t Places::chunks_of_n(const Request& request, const Schedule& schedule) {
  const bool squared = request.collective == Collective::all_to_all;
  return (squared ? std::uint32_t(request.rank_count) : schedule.blocks) * schedule.slices;
}

}  // namespace tutti::algorithms
