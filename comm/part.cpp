#include "comm/part.h"

#include "comm/dependencies.h"
#include "comm/layout.h"

namespace tutti::comm {

using algorithms::Step;
using algorithms::StepKind;

std::uint32_t operands(const Step& step) {
  if (step.kind == StepKind::reduce) return 2;
  if (step.kind != StepKind::recv_reduce) return 0;
  const std::uint32_t all = std::uint32_t(step.peers.size()) + (step.source.count != 0);
  return all > 1 ? all : 0;
}

Part make_part(const algorithms::Request& request, int rank, algorithms::Schedule schedule, const Load& load) {
  // As much of a program as a layout reads.
  Program program;
  program.request.collective = request.collective;
  program.request.rank_count = request.rank_count;
  program.rank = rank;
  program.blocks = schedule.blocks;
  program.slices = schedule.slices;
  program.scratch = std::move(schedule.scratch);
  const std::uint64_t elements = (load.bytes + load.element_bytes - 1) / load.element_bytes,
                      ranks = std::uint64_t(request.rank_count);
  const Blocks blocks{(elements + ranks - 1) / ranks, {}, {}};
  Layout layout;
  layout.bind(program, load.element_bytes, elements, blocks, blocks);
  Part part;
  part.rank = rank;
  part.steps = std::move(schedule.steps);
  part.after = find_dependencies(request, rank, schedule.slices, part.steps);
  const std::uint64_t own = std::uint64_t(rank) * blocks.each * load.element_bytes;
  const auto begin = [&](const algorithms::Chunks& chunks) {
    const bool shifted = request.in_place && chunks.space == own_block(request.collective);
    return std::int64_t(layout.extent(chunks).offset + (shifted ? own : 0));
  };
  for (const Step& step : part.steps) {
    const bool writes = step.target.count && step.kind != StepKind::send;
    part.bytes.push_back(layout.extent(writes ? step.target : step.source).bytes);
    part.begin.push_back({begin(step.source), begin(step.target)});
  }
  return part;
}

}  // namespace tutti::comm
