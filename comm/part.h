#pragma once
// Part: one rank's schedule over so many bytes, with what its steps wait for. For those who look at schedules rather
// than run them: no memory, no connections. Blocks have one size.
#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "algorithms/generate.h"
#include "comm/program.h"

namespace tutti::comm {

struct Load {
  std::uint64_t bytes = 0;  // of the whole vector; blocks: of all together; all_to_all: of one rank's blocks
  std::size_t element_bytes = 4;
  std::uint64_t segment_bytes = 0;  // 0: messages are not cut. Else as TUTTI_SEGMENT: rounded to whole elements
};

struct Part {
  int rank = 0;
  std::vector<algorithms::Step> steps;
  std::vector<std::vector<Dependency>> after;  // by step: the earlier ones that it waits for
  std::vector<std::uint64_t> bytes;            // by step; 0: it does not happen, and neither does its message
  std::vector<std::array<std::int64_t, 2>> begin;   // by step and Side: in bytes, where its memory begins

  // How far ahead of the later step's memory the earlier one's begins, in bytes.
  std::int64_t lead(std::size_t later, const Dependency& d) const {
    return begin[d.step][std::size_t(d.earlier)] - begin[later][std::size_t(d.later)];
  }
};

// Of the schedule that a generator made for this request and rank.
Part make_part(const algorithms::Request& request, int rank, algorithms::Schedule schedule, const Load& load);

inline bool receives(const algorithms::Step& step) {
  return step.kind == algorithms::StepKind::recv || step.kind == algorithms::StepKind::recv_reduce;
}
// Operands that a reduction reads; 0 where nothing is added.
std::uint32_t operands(const algorithms::Step& step);

}  // namespace tutti::comm
