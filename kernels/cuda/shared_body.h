#pragma once
// all_reduce inside one kernel, for small sizes and ranks whose memory all can reach (peer-mapped): one-shot (everybody
// reads everything) and two-shot (everybody reduces a share, then everybody reads the shares). Both give the bits of
// one reduction over all ranks' inputs in rank order.
//
// Each rank has an exchange buffer of two halves, used in turn, and flags; both are mapped by all. One block deals with
// its own part of the vector throughout and meets the same block of the other ranks, so no grid-wide barrier is needed.
// Halves in turn make the barrier at the end unnecessary: who comes to the next call has finished reading this one.
//
// A peer that never comes: whoever waits for it polls `abort`, which the host sets; then the kernel ends with *outcome
// = 1 and the output is unspecified. After that flags and halves are void: the communicator makes new ones.
#include <kernels/cuda/reduce_body.h>

namespace tutti::kernels::cuda {

inline constexpr int kSharedRanks = kPassInputs, kSharedBlocks = 32;
inline constexpr std::size_t kFlagWords = std::size_t(kSharedBlocks) * kSharedRanks;  // of each rank

struct SharedArguments {
  const std::byte* input = nullptr;
  std::byte* output = nullptr;  // may be input
  std::size_t count = 0;
  int rank = 0, ranks = 1;
  std::byte* exchange[kSharedRanks] = {};   // this call's half of each rank's buffer; at a multiple of 16
  std::uint32_t* flags[kSharedRanks] = {};  // of each rank, kFlagWords, zero before the first call
  std::uint32_t meeting = 1;                // number of this call's first meeting; it has kMeetings
  const std::uint32_t* abort = nullptr;     // pinned memory of the host
  std::uint32_t* outcome = nullptr;         // likewise; 0 before
  std::uint32_t divide_by = 1, scaled = 0;
  std::uint64_t factor = 0;  // of this rank, as in ReduceArguments
};

struct Part {
  std::size_t begin, end;
};

// The i-th of n parts of [begin, end), in elements; borders are multiples of 16 from `begin`, so that packs stay whole.
TUTTI_ANYWHERE Part part_of(Part whole, std::size_t i, std::size_t n) {
  const std::size_t units = (whole.end - whole.begin + 15) / 16, each = (units + n - 1) / n * 16;
  const std::size_t begin = whole.begin + i * each, end = begin + each;
  return {begin < whole.end ? begin : whole.end, end < whole.end ? end : whole.end};
}

// This block of all ranks meets. False: aborted; then for all threads of the block.
template <class Thread>
TUTTI_ANYWHERE bool meet(const SharedArguments& a, std::uint32_t meeting, Thread& thread) {
  thread.sync();
  bool aborted = false;
  if (thread.in_block() < std::size_t(a.ranks)) {
    const std::size_t peer = thread.in_block(), row = thread.block() * kSharedRanks;
    thread.release(a.flags[peer] + row + std::size_t(a.rank), meeting);
    while (std::int32_t(thread.acquire(a.flags[a.rank] + row + peer) - meeting) < 0 && !aborted) {
      aborted = thread.acquire(a.abort) != 0;
      thread.pause();
    }
    if (aborted) thread.release(a.outcome, 1);
  }
  return !thread.any(aborted);
}

template <DataType kType>
struct SharedSteps {
  using T = typename Number<kType>::T;
  static TUTTI_ANYWHERE std::size_t bytes(std::size_t elements) { return elements * sizeof(T); }

  // out = in, scaled where premul_sum wants it.
  template <class Thread>
  static TUTTI_ANYWHERE void copy(const SharedArguments& a, std::byte* out, const std::byte* in, Part part, bool scaled,
                                  Thread& thread) {
    ReduceArguments one;
    one.out = out + bytes(part.begin);
    one.inputs[0] = in + bytes(part.begin);
    one.count = part.end - part.begin;
    one.scaled = scaled;
    one.factors[0] = a.factor;
    Reduce<kType, kSum, 1>::run_apart(one, thread.in_block(), thread.block_size());
  }

  // out = the tree over all ranks' exchange buffers.
  template <Combine kOp, class Thread>
  static TUTTI_ANYWHERE void reduce(const SharedArguments& a, std::byte* out, Part part, Thread& thread) {
    ReduceArguments all;
    all.n = a.ranks;
    all.out = out + bytes(part.begin);
    TUTTI_UNROLL
    for (int r = 0; r < kSharedRanks; ++r)
      if (r < a.ranks) all.inputs[r] = a.exchange[r] + bytes(part.begin);
    all.count = part.end - part.begin;
    all.divide_by = a.divide_by;
    Reduce<kType, kOp, 0>::run_apart(all, thread.in_block(), thread.block_size());
  }
};

template <DataType kType, Combine kOp>
struct OneShot {
  using Arguments = SharedArguments;
  static constexpr std::uint32_t kMeetings = 1;

  template <class Thread>
  TUTTI_ANYWHERE void operator()(const Arguments& a, Thread& thread) const {
    using Steps = SharedSteps<kType>;
    const Part part = part_of({0, a.count}, thread.block(), thread.count() / thread.block_size());
    Steps::copy(a, a.exchange[a.rank], a.input, part, a.scaled, thread);
    if (!meet(a, a.meeting, thread)) return;
    Steps::template reduce<kOp>(a, a.output, part, thread);
  }
};

template <DataType kType, Combine kOp>
struct TwoShot {
  using Arguments = SharedArguments;
  static constexpr std::uint32_t kMeetings = 2;

  template <class Thread>
  TUTTI_ANYWHERE void operator()(const Arguments& a, Thread& thread) const {
    using Steps = SharedSteps<kType>;
    const std::size_t blocks = thread.count() / thread.block_size();
    const auto part = [&](int share) {
      return part_of(part_of({0, a.count}, std::size_t(share), std::size_t(a.ranks)), thread.block(), blocks);
    };
    for (int r = 0; r < a.ranks; ++r) Steps::copy(a, a.exchange[a.rank], a.input, part(r), a.scaled, thread);
    if (!meet(a, a.meeting, thread)) return;
    Steps::template reduce<kOp>(a, a.exchange[a.rank], part(a.rank), thread);  // nobody else reads that share there yet
    if (!meet(a, a.meeting + 1, thread)) return;
    for (int r = 0; r < a.ranks; ++r) Steps::copy(a, a.output, a.exchange[r], part(r), false, thread);
  }
};

}  // namespace tutti::kernels::cuda
