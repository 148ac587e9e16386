#pragma once
// The reduction of one to eight inputs in one pass: the balanced tree of kernels/kernels.h, an element at a time in the
// accumulation type, with premul_sum's factors and avg's division folded in. Bit for bit what scale() and reduce()
// give.
//
// Where all buffers lie alike within 16 bytes, all but the ends moves in packs of 16; elsewhere element by element. No
// thread writes what another one reads, so `out` may be an input.
#include <kernels/cuda/number.h>

namespace tutti::kernels::cuda {

inline constexpr int kPassInputs = 8;

struct ReduceArguments {
  std::byte* out = nullptr;  // may equal any input exactly
  const std::byte* inputs[kPassInputs] = {};
  std::size_t count = 0;
  std::uint32_t divide_by = 1;
  std::uint32_t scaled = 0;                 // whether `factors` count
  int n = 0;                                // inputs
  std::uint64_t factors[kPassInputs] = {};  // in the first bytes of each: a value of the accumulation type
};

// Of `width` (a power of two) values from `values` on, of which `n` are there. Without the absent ones a perfect tree
// is the balanced tree over those that are there.
template <class N, Combine kOp, int width>
TUTTI_ANYWHERE typename N::Acc tree(const typename N::Acc* values, int n) {
  if constexpr (width == 1) {
    return values[0];
  } else {
    const typename N::Acc left = tree<N, kOp, width / 2>(values, n);
    if (n <= width / 2) return left;
    return combine<N, kOp>(left, tree<N, kOp, width / 2>(values + width / 2, n - width / 2));
  }
}

template <class Acc>
TUTTI_ANYWHERE Acc factor_of(std::uint64_t word) {
  if constexpr (sizeof(Acc) == 8)
    return bits_as<Acc>(word);
  else if constexpr (sizeof(Acc) == 4)
    return bits_as<Acc>(std::uint32_t(word));
  else
    return Acc(word);
}

template <class Acc>
TUTTI_ANYWHERE std::uint64_t word_of(Acc factor) {
  if constexpr (sizeof(Acc) == 8)
    return bits_as<std::uint64_t>(factor);
  else if constexpr (sizeof(Acc) == 4)
    return bits_as<std::uint32_t>(factor);
  else
    return std::uint64_t(factor);
}

// kInputs: known when compiled, up to kKnownInputs, or 0: ReduceArguments::n.
inline constexpr int kKnownInputs = 4;
template <DataType kType, Combine kOp, int kInputs>
struct Reduce {
  using Arguments = ReduceArguments;
  using N = Number<kType>;
  using T = typename N::T;
  using Acc = typename N::Acc;
  static constexpr int kMost = kInputs == 0 ? kPassInputs : kInputs;
  static constexpr int kTree = kMost <= 1 ? 1 : kMost <= 2 ? 2 : kMost <= 4 ? 4 : 8;
  static constexpr int kWidth = 16 / sizeof(T);
  static constexpr int kDepth = kMost <= 2 ? 2 : 1;  // packs of each input that a thread has under way
  struct Elements {
    T at[kWidth];
  };

  static TUTTI_ANYWHERE int inputs(const Arguments& a) { return kInputs == 0 ? a.n : kInputs; }

  static TUTTI_ANYWHERE T one(const Arguments& a, const T* column) {
    Acc values[kTree];
    TUTTI_UNROLL
    for (int k = 0; k < kMost; ++k) {
      if (k >= inputs(a)) break;
      values[k] = N::widen(column[k]);
      if constexpr (kOp == kSum)
        if (a.scaled) values[k] = scaled<N>(values[k], factor_of<Acc>(a.factors[k]));
    }
    Acc value = tree<N, kOp, kTree>(values, inputs(a));
    if constexpr (kOp == kSum)
      if (a.divide_by != 1) value = divided<N>(value, a.divide_by);
    return N::narrow(value);
  }

  static TUTTI_ANYWHERE Pack many(const Arguments& a, const Pack* packs) {
    Elements from[kMost], to;
    TUTTI_UNROLL
    for (int k = 0; k < kMost; ++k)
      if (k < inputs(a)) from[k] = bits_as<Elements>(packs[k]);
    TUTTI_UNROLL
    for (int i = 0; i < kWidth; ++i) {
      T column[kMost];
      TUTTI_UNROLL
      for (int k = 0; k < kMost; ++k)
        if (k < inputs(a)) column[k] = from[k].at[i];
      to.at[i] = one(a, column);
    }
    return bits_as<Pack>(to);
  }

  // Elements at the front that packs cannot take; all when the buffers do not lie alike.
  static TUTTI_ANYWHERE std::size_t head(const Arguments& a) {
    std::uintptr_t differ = 0;
    TUTTI_UNROLL
    for (int k = 0; k < kMost; ++k)
      if (k < inputs(a)) differ |= std::uintptr_t(a.inputs[k]) ^ std::uintptr_t(a.out);
    return differ % 16 ? a.count : unaligned_elements(a.out, sizeof(T), a.count);
  }

  static TUTTI_ANYWHERE void single(const Arguments& a, std::size_t i) {
    T column[kMost];
    TUTTI_UNROLL
    for (int k = 0; k < kMost; ++k)
      if (k < inputs(a)) __builtin_memcpy(&column[k], a.inputs[k] + i * sizeof(T), sizeof(T));
    const T value = one(a, column);
    __builtin_memcpy(a.out + i * sizeof(T), &value, sizeof(T));
  }

  // By `threads` threads, of which this is `thread`.
  static TUTTI_ANYWHERE void run(const Arguments& a, std::size_t thread, std::size_t threads) {
    const std::size_t before = head(a), packs = (a.count - before) / kWidth, skip = before * sizeof(T);
    for (std::size_t first = thread; first < packs; first += threads * kDepth) {
      Pack in[kDepth][kMost];
      TUTTI_UNROLL
      for (int d = 0; d < kDepth; ++d) {
        const std::size_t i = first + threads * std::size_t(d);
        TUTTI_UNROLL
        for (int k = 0; k < kMost; ++k)
          if (i < packs && k < inputs(a)) in[d][k] = load_pack(a.inputs[k] + skip + i * 16);
      }
      TUTTI_UNROLL
      for (int d = 0; d < kDepth; ++d) {
        const std::size_t i = first + threads * std::size_t(d);
        if (i < packs) store_pack(a.out + skip + i * 16, many(a, in[d]));
      }
    }
    const std::size_t loose = a.count - packs * kWidth;
    for (std::size_t i = thread; i < loose; i += threads) single(a, i < before ? i : i + packs * kWidth);
  }
  // The same, once for all that want as many as n.
  static TUTTI_ANYWHERE_ONCE void run_apart(const Arguments& a, std::size_t thread, std::size_t threads) {
    run(a, thread, threads);
  }

  template <class Thread>
  TUTTI_ANYWHERE void operator()(const Arguments& a, Thread& thread) const {
    if constexpr (kInputs == 0)
      run_apart(a, thread.index(), thread.count());
    else
      run(a, thread.index(), thread.count());
  }
};

}  // namespace tutti::kernels::cuda
