// The loops of one SIMD level, included by exactly one file a level (scalar.cpp, avx2.cpp, ...), which defines
// TUTTI_VECTOR_BYTES before. Not a header for anybody else: everything is in an unnamed namespace, and no inline
// function of the standard library is called, so that nothing compiled for a special processor can be linked into
// common code.
//
// Written in GCC's vector extension, one vector of accumulators at a time: Acc lanes of f32 for narrow floats, of the
// type itself otherwise. A tail runs through the same code on a padded block, so tail and body have the same bits; each
// element's value depends on that element's inputs only, so strips and splits do not show.
#include <kernels/lanes.h>
#include <kernels/table.h>

#include <type_traits>

namespace tutti::kernels {
namespace {

constexpr std::size_t kStripBytes =
    4096;                          // of accumulators: kDepth of them fit into 32 KB of L1 with room for the inputs
constexpr std::size_t kDepth = 5;  // buffers for a tree of kMostInputs inputs whose leaves are passes of 4
// Inputs that one pass combines in registers, without a buffer. More loops are worth their bytes for sums only.
template <Combine kOp>
constexpr std::size_t kPassInputs = kOp == kSum ? 8 : 4;
static_assert(kMostInputs == kPassInputs<kMin> << (kDepth - 1));

// Element kinds: T (in memory), Acc (vector of accumulators), Value (its lane), kLanes; load and store convert.
template <class Number>
struct Integer {
  using T = Number;
  using Value = Number;
  static constexpr std::size_t kLanes = kVectorBytes / sizeof(T);
  using Acc = Vector<T, kLanes>;
  static TUTTI_INLINE Acc load(const std::byte* from) { return load_as<Acc>(from); }
  static TUTTI_INLINE void store(std::byte* to, Acc value) { store_as(to, value); }
};

template <class Number, class Word, Word kNan>
struct Wide {
  using T = Number;
  using Value = Number;
  static constexpr std::size_t kLanes = kVectorBytes / sizeof(T);
  using Acc = Vector<T, kLanes>;
  using Bits = Vector<Word, kLanes>;
  static TUTTI_INLINE Acc load(const std::byte* from) { return load_as<Acc>(from); }
  static TUTTI_INLINE void store(std::byte* to, Acc value) {
    const Bits nan = Bits{} + kNan;
    store_as(to, value == value ? value : (Acc)nan);
  }
};
using Single = Wide<float, std::uint32_t, kNanF32>;
using Double = Wide<double, std::uint64_t, kNanF64>;

template <class Format>
struct Narrow {
  using T = typename Format::Bits;
  using Value = float;
  static constexpr std::size_t kLanes = kWords;
  using Acc = Vector<float, kLanes>;
  using Bits = Words;
  static TUTTI_INLINE Acc load(const std::byte* from) { return widen<Format, Acc, Bits>(load_words<sizeof(T)>(from)); }
  static TUTTI_INLINE void store(std::byte* to, Acc value) {
    store_words<sizeof(T)>(to, narrow<Format, Bits, Acc>(value));
  }
};
using Brain = Narrow<Bf16>;

#if TUTTI_HALVES
// The processor's conversions are IEEE and so equal to convert.h's once NaN is made ours. An f8e5m2 is an f16's upper
// byte; an f8e4m3, moved into an f16, is 2^-8 of its value, and its one NaN gets f16's exponent of NaN.
struct Half : Narrow<F16> {
  static TUTTI_INLINE Acc load(const std::byte* from) { return from_half(load_as<Vector<T, kLanes>>(from)); }
  static TUTTI_INLINE void store(std::byte* to, Acc value) {
    const Bits nan = Bits{} + kNanF32;
    store_as(to, to_half(value == value ? value : (Acc)nan));
  }
};
struct Eight52 : Narrow<F8e5m2> {
  static TUTTI_INLINE Acc load(const std::byte* from) { return from_half(load_bytes(from) << 8); }
};
struct Eight43 : Narrow<F8e4m3> {
  static TUTTI_INLINE Acc load(const std::byte* from) {
    const auto bytes = load_bytes(from);
    const auto magnitude = bytes & 0x7f;
    const auto half = (magnitude << 7) | ((bytes & 0x80) << 8) | ((magnitude == 0x7f) & 0x7c00);
    return from_half((Vector<std::uint16_t, kLanes>)half) * 256.0f;
  }
};
#else
using Half = Narrow<F16>;
using Eight52 = Narrow<F8e5m2>;
using Eight43 = Narrow<F8e4m3>;
#endif

// Partial results of Kind, as they lie in the buffers.
template <class Kind>
struct Partial : Kind {
  using T = typename Kind::Value;
  static TUTTI_INLINE typename Kind::Acc load(const std::byte* from) { return load_as<typename Kind::Acc>(from); }
  static TUTTI_INLINE void store(std::byte* to, typename Kind::Acc value) { store_as(to, value); }
};

template <class Kind>
constexpr bool kIsFloat = static_cast<typename Kind::Value>(0.5) != 0;

// a op b. Signed integers must come as their unsigned kind for sum and prod: those wrap.
template <class Kind, Combine kOp>
TUTTI_INLINE typename Kind::Acc combine(typename Kind::Acc a, typename Kind::Acc b) {
  using Acc = typename Kind::Acc;
  if constexpr (kOp == kSum) {
    return a + b;
  } else if constexpr (kOp == kProd) {
    return a * b;
  } else if constexpr (!kIsFloat<Kind>) {
    return (kOp == kMin ? a < b : b < a) ? a : b;
  } else {
    using Bits = typename Kind::Bits;
    // Equal means the same bits but for zeros: there `or` finds a minus for min, `and` keeps it out of max.
    const Bits tie = kOp == kMin ? (Bits)a | (Bits)b : (Bits)a & (Bits)b;
    Acc result = (kOp == kMin ? a < b : b < a) ? a : b;  // b when b is NaN
    result = a == b ? (Acc)tie : result;
    return a == a ? result : a;
  }
}

// Inputs of the left half of a tree over n: the largest power of two below n.
constexpr std::size_t left_half(std::size_t n) {
  std::size_t half = 1;
  while (half * 2 < n) half *= 2;
  return half;
}

// The balanced tree of kernels.h over n vectors in registers.
template <class Kind, Combine kOp, std::size_t n>
TUTTI_INLINE typename Kind::Acc tree(const typename Kind::Acc* v) {
  if constexpr (n == 1) {
    return v[0];
  } else {
    constexpr std::size_t half = left_half(n);
    return combine<Kind, kOp>(tree<Kind, kOp, half>(v), tree<Kind, kOp, n - half>(v + half));
  }
}

// out[i] = f(inputs[0][i], ...), a vector at a time.
template <class In, class Out, std::size_t n, class F>
TUTTI_INLINE void sweep(std::byte* out, const std::byte* const* inputs, std::size_t count, F f) {
  constexpr std::size_t lanes = In::kLanes, step = lanes * sizeof(typename In::T),
                        out_step = lanes * sizeof(typename Out::T);
  const std::byte* from[n];
  typename In::Acc v[n];
  for (std::size_t k = 0; k < n; ++k) from[k] = inputs[k];
  for (std::size_t left = count / lanes; left != 0; --left) {
    for (std::size_t k = 0; k < n; ++k) {
      v[k] = In::load(from[k]);
      from[k] += step;
    }
    Out::store(out, f(v));
    out += out_step;
  }
  if (const std::size_t rest = count % lanes; rest != 0) {
    alignas(kVectorBytes) std::byte block[kVectorBytes] = {};
    for (std::size_t k = 0; k < n; ++k) {
      __builtin_memcpy(block, from[k], rest * sizeof(typename In::T));
      v[k] = In::load(block);
    }
    Out::store(block, f(v));
    __builtin_memcpy(out, block, rest * sizeof(typename Out::T));
  }
}

template <class Kind, class Out, Combine kOp, std::size_t n>
void pass(std::byte* out, const std::byte* const* inputs, std::size_t count) {
  sweep<Kind, Out, n>(
      out, inputs, count,
      [](const typename Kind::Acc* v) __attribute__((always_inline)) { return tree<Kind, kOp, n>(v); });
}

// 1 <= n <= kPassInputs<kOp>, of which kMost is the greatest that is still possible.
template <class Kind, class Out, Combine kOp, std::size_t kMost = kPassInputs<kOp>>
TUTTI_INLINE void small_pass(std::byte* out, const std::byte* const* inputs, std::size_t n, std::size_t count) {
  if constexpr (kMost == 1)
    return pass<Kind, Out, kOp, 1>(out, inputs, count);
  else if (n == kMost)
    return pass<Kind, Out, kOp, kMost>(out, inputs, count);
  else
    return small_pass<Kind, Out, kOp, kMost - 1>(out, inputs, n, count);
}

// buffers[0] = the tree over the inputs' elements from `begin` on; the further buffers are scratch.
template <class Kind, Combine kOp>
void subtree(std::byte (*buffers)[kStripBytes], const std::byte* const* inputs, std::size_t n, std::size_t begin,
             std::size_t count) {
  if (n <= kPassInputs<kOp>) {
    const std::byte* from[kPassInputs<kOp>];
    for (std::size_t k = 0; k < n; ++k) from[k] = inputs[k] + begin * sizeof(typename Kind::T);
    return small_pass<Kind, Partial<Kind>, kOp>(buffers[0], from, n, count);
  }
  const std::size_t half = left_half(n);
  subtree<Kind, kOp>(buffers, inputs, half, begin, count);
  subtree<Kind, kOp>(buffers + 1, inputs + half, n - half, begin, count);
  const std::byte* from[2] = {buffers[0], buffers[1]};
  pass<Partial<Kind>, Partial<Kind>, kOp, 2>(buffers[0], from, count);
}

// out = in / divide_by, of n inputs' sum. By a power of two as a product or a shift, which have the same bits and take less time.
template <class Kind, class In, std::size_t n>
void divided_pass(std::byte* out, const std::byte* const* inputs, std::size_t count, std::uint32_t divide_by) {
  using Value = typename Kind::Value;
  using Acc = typename Kind::Acc;
  const auto sum = [](const typename In::Acc* v) __attribute__((always_inline)) { return (Acc)tree<In, kSum, n>(v); };
  const bool shifts = (divide_by & (divide_by - 1)) == 0;
  if constexpr (kIsFloat<Kind>) {
    const Acc by = Acc{} + (shifts ? 1 / Value(divide_by) : Value(divide_by));
    if (shifts) return sweep<In, Kind, n>(out, inputs, count, [=](const Acc* v) __attribute__((always_inline)) { return sum(v) * by; });
    sweep<In, Kind, n>(out, inputs, count, [=](const Acc* v) __attribute__((always_inline)) { return sum(v) / by; });
  } else if (shifts && (sizeof(Value) > 1 || divide_by < 128)) {
    // Towards zero: what is negative is first raised by the divisor less one.
    const Acc places = Acc{} + Value(__builtin_ctz(divide_by));
    const Acc less_one = Acc{} + Value(divide_by - 1);
    sweep<In, Kind, n>(out, inputs, count, [=](const typename In::Acc* v) __attribute__((always_inline)) {
      const Acc whole = sum(v);
      return (whole + ((Acc)(whole < Acc{}) & less_one)) >> places;
    });
  } else if constexpr (sizeof(Value) < 8) {
    // Quotients of 8 bits are exact in f32, those of 32 bits in f64: they keep 2^-8 and 2^-32 away from the next integer.
    using Real = std::conditional_t<sizeof(Value) == 1, float, double>;
    using Reals = Vector<Real, Kind::kLanes>;
    sweep<In, Kind, n>(out, inputs, count, [=](const typename In::Acc* v) __attribute__((always_inline)) {
      const Acc whole = sum(v);
      return __builtin_convertvector(__builtin_convertvector(whole, Reals) / (Reals{} + Real(divide_by)), Acc);
    });
  } else {
    sweep<In, Kind, n>(out, inputs, count, [=](const typename In::Acc* v) __attribute__((always_inline)) { return sum(v) / (Acc{} + Value(divide_by)); });
  }
}

template <class Kind, class In, std::size_t kMost = kPassInputs<kSum>>
TUTTI_INLINE void small_divided_pass(std::byte* out, const std::byte* const* inputs, std::size_t n, std::size_t count, std::uint32_t divide_by) {
  if constexpr (kMost == 1)
    return divided_pass<Kind, In, 1>(out, inputs, count, divide_by);
  else if (n == kMost)
    return divided_pass<Kind, In, kMost>(out, inputs, count, divide_by);
  else
    return small_divided_pass<Kind, In, kMost - 1>(out, inputs, n, count, divide_by);
}

// Calculating: the kind in which the tree is summed, which differs from Kind for signed sums only.
template <class Kind, Combine kOp, class Calculating = Kind>
void reduce(std::byte* out, const std::byte* const* inputs, std::size_t n, std::size_t count, std::uint32_t divide_by) {
  if (n <= kPassInputs<kOp> && divide_by == 1) return small_pass<Calculating, Calculating, kOp>(out, inputs, n, count);
  if constexpr (kOp == kSum)
    if (n <= kPassInputs<kOp>) return small_divided_pass<Kind, Calculating>(out, inputs, n, count, divide_by);
  constexpr std::size_t strip = kStripBytes / sizeof(typename Kind::Value);
  alignas(kVectorBytes) std::byte buffers[kDepth][kStripBytes];
  for (std::size_t begin = 0; begin < count; begin += strip) {
    const std::size_t now = count - begin < strip ? count - begin : strip;
    std::byte* to = out + begin * sizeof(typename Kind::T);
    subtree<Calculating, kOp>(buffers, inputs, n, begin, now);
    const std::byte* from = buffers[0];
    if (divide_by != 1)
      divided_pass<Kind, Partial<Kind>, 1>(to, &from, now, divide_by);
    else
      pass<Partial<Calculating>, Calculating, kOp, 1>(to, &from, now);
  }
}

template <class Kind>
void scale(std::byte* out, const std::byte* in, std::size_t count, const void* factor) {
  using Acc = typename Kind::Acc;
  const Acc by = Acc{} + load_as<typename Kind::Value>(static_cast<const std::byte*>(factor));
  sweep<Kind, Kind, 1>(
      out, &in, count, [by](const Acc* v) __attribute__((always_inline)) { return v[0] * by; });
}

template <class From, class To>
void convert(std::byte* out, const std::byte* in, std::size_t count) {
  sweep<From, To, 1>(
      out, &in, count, [](const typename From::Acc* v) __attribute__((always_inline)) { return v[0]; });
}

#define TUTTI_ROW(Kind, Wrapping) \
  { reduce<Kind, kSum, Wrapping>, reduce<Kind, kProd, Wrapping>, reduce<Kind, kMin>, reduce<Kind, kMax> }

using I8 = Integer<std::int8_t>;
using U8 = Integer<std::uint8_t>;
using I32 = Integer<std::int32_t>;
using U32 = Integer<std::uint32_t>;
using I64 = Integer<std::int64_t>;
using U64 = Integer<std::uint64_t>;

constexpr Table kTable{
    {TUTTI_ROW(I8, U8), TUTTI_ROW(U8, U8), TUTTI_ROW(I32, U32), TUTTI_ROW(U32, U32), TUTTI_ROW(I64, U64),
     TUTTI_ROW(U64, U64), TUTTI_ROW(Half, Half), TUTTI_ROW(Brain, Brain), TUTTI_ROW(Single, Single),
     TUTTI_ROW(Double, Double), TUTTI_ROW(Eight43, Eight43), TUTTI_ROW(Eight52, Eight52)},
    {scale<U8>, scale<U8>, scale<U32>, scale<U32>, scale<U64>, scale<U64>, scale<Half>, scale<Brain>, scale<Single>,
     scale<Double>, scale<Eight43>, scale<Eight52>},
    {convert<Half, Single>, convert<Brain, Single>, convert<Eight43, Single>, convert<Eight52, Single>},
    {convert<Single, Half>, convert<Single, Brain>, convert<Single, Eight43>, convert<Single, Eight52>}};
#undef TUTTI_ROW

}  // namespace
}  // namespace tutti::kernels
