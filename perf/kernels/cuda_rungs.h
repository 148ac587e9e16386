#pragma once
// The lower rungs of the CUDA ladder: what kernels/cuda would be without 16-byte accesses, without a grid that fits the
// GPU, without several packs under way. Bodies as there.
#include <kernels/cuda/cast_body.h>
#include <kernels/cuda/reduce_body.h>

namespace tutti::kernels::cuda {

// One element a thread; the grid is as large as the vector.
template <DataType kType, Combine kOp, int kInputs>
struct NaiveReduce {
  using Arguments = ReduceArguments;
  template <class Thread>
  TUTTI_ANYWHERE void operator()(const Arguments& a, Thread& thread) const {
    if (thread.index() < a.count) Reduce<kType, kOp, kInputs>::single(a, thread.index());
  }
};

// Element by element, by as many threads as the GPU runs at once.
template <DataType kType, Combine kOp, int kInputs>
struct StridedReduce {
  using Arguments = ReduceArguments;
  template <class Thread>
  TUTTI_ANYWHERE void operator()(const Arguments& a, Thread& thread) const {
    for (std::size_t i = thread.index(); i < a.count; i += thread.count()) Reduce<kType, kOp, kInputs>::single(a, i);
  }
};

// 16 bytes at a time, one pack of each input under way. Buffers at multiples of 16, whole packs.
template <DataType kType, Combine kOp, int kInputs>
struct PackedReduce {
  using Arguments = ReduceArguments;
  using Best = Reduce<kType, kOp, kInputs>;
  template <class Thread>
  TUTTI_ANYWHERE void operator()(const Arguments& a, Thread& thread) const {
    for (std::size_t i = thread.index(); i < a.count / Best::kWidth; i += thread.count()) {
      Pack in[Best::kMost];
      TUTTI_UNROLL
      for (int k = 0; k < Best::kMost; ++k)
        if (k < Best::inputs(a)) in[k] = load_pack(a.inputs[k] + i * 16);
      store_pack(a.out + i * 16, Best::many(a, in));
    }
  }
};

template <DataType kFrom, DataType kTo>
struct NaiveCast {
  using Arguments = CastArguments;
  template <class Thread>
  TUTTI_ANYWHERE void operator()(const Arguments& a, Thread& thread) const {
    if (thread.index() < a.count) Cast<kFrom, kTo>::single(a, thread.index());
  }
};
template <DataType kFrom, DataType kTo>
struct StridedCast {
  using Arguments = CastArguments;
  template <class Thread>
  TUTTI_ANYWHERE void operator()(const Arguments& a, Thread& thread) const {
    for (std::size_t i = thread.index(); i < a.count; i += thread.count()) Cast<kFrom, kTo>::single(a, i);
  }
};

}  // namespace tutti::kernels::cuda
