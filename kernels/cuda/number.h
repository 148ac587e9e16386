#pragma once
// One element of each type, as kernels/body.h understands it: how it becomes a value of its accumulation type and comes
// back, and how two are combined. The results have the bits of the host kernels. On a GPU, f16 and bf16 are converted
// by the instructions that exist for that; NaN is made ours around them.
#include <kernels/convert.h>
#include <kernels/cuda/thread.h>
#include <kernels/table.h>
#include <tutti/types.h>

#include <utility>

namespace tutti::kernels::cuda {

template <class To, class From>
TUTTI_ANYWHERE To bits_as(From value) {
  static_assert(sizeof(To) == sizeof(From));
  return __builtin_bit_cast(To, value);
}

// T: in memory. Acc: what is added. Format: the type's name in kernels/cast_value.h.
template <class Element, class Unsigned>
struct IntegerNumber {
  using Format = Element;
  using T = Element;
  using Acc = Element;
  static constexpr bool kFloat = false;
  static TUTTI_ANYWHERE Acc widen(T value) { return value; }
  static TUTTI_ANYWHERE T narrow(Acc value) { return value; }
  static TUTTI_ANYWHERE Acc add(Acc a, Acc b) { return Acc(Unsigned(a) + Unsigned(b)); }  // wraps
  static TUTTI_ANYWHERE Acc multiply(Acc a, Acc b) { return Acc(Unsigned(a) * Unsigned(b)); }
  static TUTTI_ANYWHERE Acc divide(Acc a, std::uint32_t by) {
    if constexpr (Element(-1) > Element(0))
      return Acc(std::uint64_t(a) / by);
    else
      return Acc(std::int64_t(a) / std::int64_t(by));
  }
};

template <class Element, class Word, Word kNan>
struct WideNumber {
  using Format = Element;
  using T = Element;
  using Acc = Element;
  using Bits = Word;
  static constexpr bool kFloat = true;
  static TUTTI_ANYWHERE Acc widen(T value) { return value; }
  static TUTTI_ANYWHERE T narrow(Acc value) { return value == value ? value : bits_as<T>(Word(kNan)); }
};

template <class Narrow>
struct NarrowNumber {
  using Format = Narrow;
  using T = typename Format::Bits;
  using Acc = float;
  using Bits = std::uint32_t;
  static constexpr bool kFloat = true;
  static TUTTI_ANYWHERE Acc widen(T value) { return kernels::widen<Format, float, std::uint32_t>(value); }
  static TUTTI_ANYWHERE T narrow(Acc value) { return T(kernels::narrow<Format, std::uint32_t, float>(value)); }
};

#if defined(__CUDA_ARCH__)
TUTTI_ANYWHERE float from_half(std::uint16_t bits) {
  float value;
  asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
  return value;
}
#endif

struct HalfNumber : NarrowNumber<F16> {
#if defined(__CUDA_ARCH__)
  static TUTTI_ANYWHERE Acc widen(T value) { return from_half(value); }
  static TUTTI_ANYWHERE T narrow(Acc value) {
    T bits;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(value));
    return value == value ? bits : T(F16::kNan);
  }
#endif
};
struct BrainNumber : NarrowNumber<Bf16> {
#if defined(__CUDA_ARCH__)
  static TUTTI_ANYWHERE T narrow(Acc value) {
    T bits;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bits) : "f"(value));
    return value == value ? bits : T(Bf16::kNan);
  }
#endif
};
// As in kernels/body.h: an f8e5m2 is an f16's upper byte; an f8e4m3, moved into an f16, is 2^-8 of its value.
struct Eight52Number : NarrowNumber<F8e5m2> {
#if defined(__CUDA_ARCH__)
  static TUTTI_ANYWHERE Acc widen(T value) { return from_half(std::uint16_t(std::uint16_t(value) << 8)); }
#endif
};
struct Eight43Number : NarrowNumber<F8e4m3> {
#if defined(__CUDA_ARCH__)
  static TUTTI_ANYWHERE Acc widen(T value) {
    const std::uint32_t magnitude = value & 0x7fu;
    const std::uint32_t half = (magnitude << 7) | ((value & 0x80u) << 8) | (magnitude == 0x7f ? 0x7c00u : 0u);
    return from_half(std::uint16_t(half)) * 256.0f;
  }
#endif
};

template <DataType kType>
struct NumberOf;
template <>
struct NumberOf<DataType::i8> {
  using type = IntegerNumber<std::int8_t, std::uint32_t>;
};
template <>
struct NumberOf<DataType::u8> {
  using type = IntegerNumber<std::uint8_t, std::uint32_t>;
};
template <>
struct NumberOf<DataType::i32> {
  using type = IntegerNumber<std::int32_t, std::uint32_t>;
};
template <>
struct NumberOf<DataType::u32> {
  using type = IntegerNumber<std::uint32_t, std::uint32_t>;
};
template <>
struct NumberOf<DataType::i64> {
  using type = IntegerNumber<std::int64_t, std::uint64_t>;
};
template <>
struct NumberOf<DataType::u64> {
  using type = IntegerNumber<std::uint64_t, std::uint64_t>;
};
template <>
struct NumberOf<DataType::f16> {
  using type = HalfNumber;
};
template <>
struct NumberOf<DataType::bf16> {
  using type = BrainNumber;
};
template <>
struct NumberOf<DataType::f32> {
  using type = WideNumber<float, std::uint32_t, kNanF32>;
};
template <>
struct NumberOf<DataType::f64> {
  using type = WideNumber<double, std::uint64_t, kNanF64>;
};
template <>
struct NumberOf<DataType::f8e4m3> {
  using type = Eight43Number;
};
template <>
struct NumberOf<DataType::f8e5m2> {
  using type = Eight52Number;
};
template <DataType kType>
using Number = typename NumberOf<kType>::type;

template <class N, Combine kOp>
TUTTI_ANYWHERE typename N::Acc combine(typename N::Acc a, typename N::Acc b) {
  using Acc = typename N::Acc;
  if constexpr (!N::kFloat) {
    if constexpr (kOp == kSum)
      return N::add(a, b);
    else if constexpr (kOp == kProd)
      return N::multiply(a, b);
    else
      return (kOp == kMin ? a < b : b < a) ? a : b;
  } else if constexpr (kOp == kSum) {
    return a + b;
  } else if constexpr (kOp == kProd) {
    return a * b;
  } else {
    using Bits = typename N::Bits;
    if (a != a) return a;
    if (a == b) {  // the same bits but for zeros: a minus wins min, a plus wins max
      const Bits x = bits_as<Bits>(a), y = bits_as<Bits>(b);
      return bits_as<Acc>(Bits(kOp == kMin ? x | y : x & y));
    }
    return (kOp == kMin ? a < b : b < a) ? a : b;  // b when b is NaN
  }
}

template <class N>
TUTTI_ANYWHERE typename N::Acc divided(typename N::Acc value, std::uint32_t by) {
  if constexpr (N::kFloat)
    return value / typename N::Acc(by);
  else
    return N::divide(value, by);
}

// As scale() gives it: rounded to the type.
template <class N>
TUTTI_ANYWHERE typename N::Acc scaled(typename N::Acc value, typename N::Acc by) {
  if constexpr (N::kFloat)
    return N::widen(N::narrow(value * by));
  else
    return N::multiply(value, by);
}

}  // namespace tutti::kernels::cuda
