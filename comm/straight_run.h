#pragma once
// StraightRun: a call on streams run in the memory of GPUs that RDMA devices reach. It is operations that the executor runs without touching a byte,
// and what the stream does before and behind each: copies of the rank's own bytes, and additions by the GPU's kernels of what has come from
// the others. Here is which schedules serve, and how a reduction is made of operations that only copy. Pure.
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "algorithms/generate.h"
#include "comm/arguments.h"
#include "core/device.h"

namespace tutti::comm {

// One operation. A binding's scratch is set.
struct StraightStage {
  struct Copy {
    std::byte* to;
    const std::byte* from;
    std::uint64_t bytes;
  };
  Prepared operation;
  std::shared_ptr<const Program> program;
  std::vector<Copy> before, after;         // by the stream
  std::optional<DeviceReduction> adds;     // by the stream, between the operation and the copies after it
  std::uint32_t ahead = 0;                 // so many further ones are begun before the stream waits for this one
};

// Only sends and receives, and copies that come before all that the rank sends or receives of their bytes, or behind it.
bool is_straight(const Program& program);
// Whether it is, on all ranks, in place or not, and all messages are longer than `least`. The same on all ranks; takes milliseconds.
bool is_straight(const algorithms::Generator& generator, algorithms::Request request, const Binding& binding, std::uint64_t least);
std::uint64_t scratch_bytes_of(const Program& program, const Binding& binding);
// A call that only copies. `scratch`: of so many bytes.
StraightStage straight_stage(const Prepared& call, std::shared_ptr<const Program> program, std::byte* scratch);

// Reductions: each rank adds up a share of every piece, which all have sent it, and the shares are gathered where they are wanted.
struct StraightReduction {
  static constexpr std::uint64_t kPiece = 8 << 20;                     // bytes of the vector that take part at once
  static constexpr std::uint64_t kArea = 2 * (kPiece + kPiece / 2 + 4096);   // of the GPU's memory: two pieces, and a share of each
  std::shared_ptr<const Program> exchange, gather;   // of all_to_all; of all_gather in place, gather, or none. Without scratch
};
// Whether it can be, with messages longer than `least`. The same on all ranks.
bool reduces_straight(const Prepared& call, int ranks, std::uint64_t least);
// What the GPU does not reach, of input and output, is copied by the stream: kernels touch the GPU's memory alone.
struct Reached {
  bool input = true, output = true;
};
std::vector<StraightStage> straight_stages(const Prepared& call, int rank, int ranks, const StraightReduction& by, std::byte* area, Reached reached);

// How a call goes; neither: it does not.
struct StraightWay {
  std::shared_ptr<const Program> program;  // as one operation
  StraightReduction reduction;
  explicit operator bool() const { return program || reduction.exchange; }
};

}  // namespace tutti::comm
