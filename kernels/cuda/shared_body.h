#pragma once
// Collectives inside one kernel, for ranks whose memory all can reach (peer-mapped). Everybody puts what others want into
// its own memory, all meet, everybody takes what it wants out of the others': OneShot adds it up, Collect copies it. For an
// all_reduce there is TwoShot, too: everybody reduces a share, all meet again, everybody reads the shares. Reductions have
// the bits of one over all ranks' inputs in rank order; copies have all bits.
//
// Each rank has an exchange buffer of two halves, used in turn, and flags; both are mapped by all. One block deals with
// its own part of the vector throughout and meets the same block of the other ranks, so no grid-wide barrier is needed.
// Halves in turn make the barrier at the end unnecessary: who comes to the next call has finished reading this one.
//
// With the first flag goes the call: ranks that make different ones find out at once. A peer that never comes: whoever
// waits for it looks at `abort` now and then, which the host sets. Either way the kernel ends, says so in `words`, and
// the output is unspecified. After that flags and halves are void.
#include <core/device.h>
#include <kernels/cuda/move.h>
#include <kernels/cuda/reduce_body.h>

namespace tutti::kernels::cuda {

inline constexpr int kSharedRanks = SharedExchange::kMostRanks;
static_assert(kSharedRanks <= kPassInputs);
inline constexpr std::size_t kFlagWords = SharedExchange::kFlagWords;

struct SharedArguments {
  const std::byte* input = nullptr;
  std::byte* output = nullptr;
  std::size_t count = 0;  // of a row: elements; of Collect, bytes
  std::size_t input_pitch = 0, output_pitch = 0, row_bytes = 0;  // from a row to the next; in an area
  int rows = 1, row = 0, from = 0, until = 0;
  int rank = 0, ranks = 1;
  std::byte* exchange[kSharedRanks] = {};   // this call's half of each rank's area; at a multiple of 16
  std::uint32_t* flags[kSharedRanks] = {};  // of each rank, zero before the first call
  std::uint32_t number = 1;                 // of this call
  std::uint32_t meeting = 1;                // number of its first meeting
  std::uint64_t call = 0;
  SharedWords* words = nullptr;
  std::uint32_t divide_by = 1, scaled = 0;
  std::uint64_t factor = 0;  // of this rank, as in ReduceArguments
  const std::byte* factor_on_device = nullptr;  // instead, of the type
};

inline SharedArguments arguments_of(const SharedExchange& r, std::uint64_t rounded_factor) {
  SharedArguments a;
  const std::size_t bytes = r.count * size_of(r.type);
  a.input = r.input, a.output = r.output, a.count = r.reduces ? r.count : bytes;
  a.input_pitch = r.input_pitch, a.output_pitch = r.output_pitch, a.row_bytes = r.row_bytes(bytes);
  a.rows = r.rows, a.row = r.row, a.from = r.from, a.until = r.until;
  a.rank = r.rank, a.ranks = r.ranks;
  for (int k = 0; k < r.ranks; ++k) {
    a.exchange[k] = r.areas[k] + r.number % 2 * r.half;
    a.flags[k] = reinterpret_cast<std::uint32_t*>(r.areas[k] + 2 * r.half);
  }
  a.number = r.number, a.meeting = r.meeting, a.call = r.call, a.words = r.words;
  a.divide_by = r.op == ReduceOp::avg ? std::uint32_t(r.ranks) : 1;
  a.scaled = r.op == ReduceOp::premul_sum;
  a.factor = rounded_factor;
  a.factor_on_device = r.factor_on_device;
  return a;
}

struct Part {
  std::size_t begin, end;
};

// The i-th of n parts of [begin, end), in elements; borders are multiples of 16 from `begin`, so that packs stay whole.
TUTTI_ANYWHERE Part part_of(Part whole, std::size_t i, std::size_t n) {
  const std::size_t units = (whole.end - whole.begin + 15) / 16, each = (units + n - 1) / n * 16;
  const std::size_t begin = whole.begin + i * each, end = begin + each;
  return {begin < whole.end ? begin : whole.end, end < whole.end ? end : whole.end};
}

inline constexpr std::uint32_t kLooksBetweenPauses = 32;

// Where a rank's call of that number stands among a rank's flags, behind them: two words.
TUTTI_ANYWHERE std::uint32_t* call_words(std::uint32_t* flags, std::uint32_t number, std::size_t at) {
  return flags + kFlagWords + (number % 2 * kFlagWords + at) * 2;
}

// One thread with one peer. False: aborted, or the peer makes another call; then `words` say so.
template <class Thread>
TUTTI_ANYWHERE bool meet_peer(const SharedArguments& a, std::uint32_t meeting, int peer, Thread& thread) {
  const std::size_t row = thread.block() * kSharedRanks, mine = row + std::size_t(a.rank),
                    theirs = row + std::size_t(peer);
  const std::uint32_t call[2] = {std::uint32_t(a.call), std::uint32_t(a.call >> 32)};
  std::uint32_t* const told = call_words(a.flags[peer], a.number, mine);
  told[0] = call[0], told[1] = call[1];
  thread.release(a.flags[peer] + mine, meeting);
  for (std::uint32_t looks = 1; std::int32_t(thread.acquire(a.flags[a.rank] + theirs) - meeting) < 0; ++looks) {
    if (looks % kLooksBetweenPauses != 0) continue;
    if (thread.acquire(&a.words->abort) != 0) {
      if (thread.acquire(&a.words->outcome) == 0) thread.release(&a.words->outcome, SharedWords::kAborted);
      return false;
    }
    thread.pause();
  }
  const std::uint32_t* const heard = call_words(a.flags[a.rank], a.number, theirs);
  if (heard[0] == call[0] && heard[1] == call[1]) return true;
  if (thread.block() == 0 && thread.acquire(&a.words->outcome) == 0) {
    a.words->call[0] = heard[0], a.words->call[1] = heard[1];
    a.words->number = a.number, a.words->peer = std::uint32_t(peer);
    thread.release(&a.words->outcome, SharedWords::kMismatch);
  }
  return false;
}

// This block of all ranks meets. False: the call is over; then for all threads of the block.
template <class Thread>
TUTTI_ANYWHERE bool meet(const SharedArguments& a, std::uint32_t meeting, Thread& thread) {
  thread.sync();
  bool over = false;
  if (thread.in_block() < std::size_t(a.ranks)) over = !meet_peer(a, meeting, int(thread.in_block()), thread);
  return !thread.any(over);
}

template <class Thread>
TUTTI_ANYWHERE void begin(const SharedArguments& a, Thread& thread) {
  if (thread.index() == 0) thread.release(&a.words->begun, a.number);
}

template <DataType kType>
struct SharedSteps {
  using T = typename Number<kType>::T;
  static TUTTI_ANYWHERE std::size_t bytes(std::size_t elements) { return elements * sizeof(T); }

  // out = in, scaled where premul_sum wants it. By this thread of so many, as below.
  static TUTTI_ANYWHERE_ONCE void copy(const SharedArguments& a, std::byte* out, const std::byte* in, Part part,
                                       bool scaled, std::size_t thread, std::size_t threads) {
    ReduceArguments one;
    one.out = out + bytes(part.begin);
    one.inputs[0] = in + bytes(part.begin);
    one.count = part.end - part.begin;
    one.scaled = scaled;
    one.factors[0] = a.factor;
    if (scaled && a.factor_on_device)
      one.factors[0] = word_of(Number<kType>::widen(*reinterpret_cast<const T*>(a.factor_on_device)));
    Reduce<kType, kSum, 1>::run(one, thread, threads);
  }

  // out = the tree over the row of all ranks' exchange buffers.
  template <Combine kOp>
  static TUTTI_ANYWHERE_ONCE void reduce(const SharedArguments& a, std::byte* out, Part part, std::size_t thread,
                                         std::size_t threads) {
    ReduceArguments all;
    all.n = a.ranks;
    all.out = out + bytes(part.begin);
    TUTTI_UNROLL
    for (int r = 0; r < kSharedRanks; ++r)
      if (r < a.ranks) all.inputs[r] = a.exchange[r] + std::size_t(a.row) * a.row_bytes + bytes(part.begin);
    all.count = part.end - part.begin;
    all.divide_by = a.divide_by;
    Reduce<kType, kOp, 0>::run(all, thread, threads);
  }
};

template <DataType kType, Combine kOp>
struct OneShot {
  using Arguments = SharedArguments;

  template <class Thread>
  TUTTI_ANYWHERE void operator()(const Arguments& a, Thread& thread) const {
    using Steps = SharedSteps<kType>;
    const std::size_t me = thread.in_block(), all = thread.block_size();
    begin(a, thread);
    const Part part = part_of({0, a.count}, thread.block(), thread.count() / thread.block_size());
    for (std::size_t r = 0; r < std::size_t(a.rows); ++r)
      Steps::copy(a, a.exchange[a.rank] + r * a.row_bytes, a.input + r * a.input_pitch, part, a.scaled, me, all);
    if (!meet(a, a.meeting, thread)) return;
    if (a.from != a.until) Steps::template reduce<kOp>(a, a.output, part, me, all);
  }
};

template <DataType kType, Combine kOp>
struct TwoShot {
  using Arguments = SharedArguments;

  template <class Thread>
  TUTTI_ANYWHERE void operator()(const Arguments& a, Thread& thread) const {
    using Steps = SharedSteps<kType>;
    const std::size_t me = thread.in_block(), all = thread.block_size();
    begin(a, thread);
    const std::size_t blocks = thread.count() / thread.block_size();
    const auto part = [&](int share) {
      return part_of(part_of({0, a.count}, std::size_t(share), std::size_t(a.ranks)), thread.block(), blocks);
    };
    for (int r = 0; r < a.ranks; ++r) Steps::copy(a, a.exchange[a.rank], a.input, part(r), a.scaled, me, all);
    if (!meet(a, a.meeting, thread)) return;
    Steps::template reduce<kOp>(a, a.exchange[a.rank], part(a.rank), me, all);  // nobody else reads that share there yet
    if (!meet(a, a.meeting + 1, thread)) return;
    for (int r = 0; r < a.ranks; ++r) Steps::copy(a, a.output, a.exchange[r], part(r), false, me, all);
  }
};

// Bytes. Ranks begin with different peers, so that they do not all read from the same.
struct Collect {
  using Arguments = SharedArguments;

  template <class Thread>
  TUTTI_ANYWHERE void operator()(const Arguments& a, Thread& thread) const {
    begin(a, thread);
    const Part part = part_of({0, a.count}, thread.block(), thread.count() / thread.block_size());
    const auto move = [&](std::byte* to, const std::byte* from) {
      move_bytes(to + part.begin, from + part.begin, part.end - part.begin, thread.in_block(), thread.block_size());
    };
    for (std::size_t r = 0; r < std::size_t(a.rows); ++r)
      move(a.exchange[a.rank] + r * a.row_bytes, a.input + r * a.input_pitch);
    if (!meet(a, a.meeting, thread)) return;
    const int peers = a.until - a.from;
    for (int k = 0; k < peers; ++k) {
      const int at = (a.rank + k) % peers;
      move(a.output + std::size_t(at) * a.output_pitch, a.exchange[a.from + at] + std::size_t(a.row) * a.row_bytes);
    }
  }
};

int launch_collect(int blocks, void* stream, const SharedArguments& arguments);

}  // namespace tutti::kernels::cuda
