#pragma once
// The narrow float formats, and the one way in which they become f32 and come back. The same templates serve a single
// value (std::uint32_t, float) and a SIMD vector of them, so body and tail cannot disagree. Not a number class: no
// arithmetic here.
//
// All conversions round to nearest even, whatever the sign; NaN becomes the one quiet NaN of the target; denormals are
// exact both ways, also where the processor is set to flush them.
#include <cstddef>
#include <cstdint>

namespace tutti::kernels {

// Bits of a format: sign, exponent with kBias, kMantissa bits. kOverflow is what too large a magnitude becomes; formats
// with kInfinity keep the top exponent for infinity and NaN, as IEEE does.
struct F16 {
  using Bits = std::uint16_t;
  static constexpr std::uint32_t kMantissa = 10, kBias = 15, kSign = 0x8000, kOverflow = 0x7c00, kNan = 0x7e00;
  static constexpr bool kInfinity = true;
};
struct Bf16 {
  using Bits = std::uint16_t;
  static constexpr std::uint32_t kMantissa = 7, kBias = 127, kSign = 0x8000, kOverflow = 0x7f80, kNan = 0x7fc0;
  static constexpr bool kInfinity = true;
};
struct F8e4m3 {  // OCP 8-bit floating point, revision 1.0: no infinities, one NaN per sign, largest 448
  using Bits = std::uint8_t;
  static constexpr std::uint32_t kMantissa = 3, kBias = 7, kSign = 0x80, kOverflow = 0x7e, kNan = 0x7f;
  static constexpr bool kInfinity = false;
};
struct F8e5m2 {
  using Bits = std::uint8_t;
  static constexpr std::uint32_t kMantissa = 2, kBias = 15, kSign = 0x80, kOverflow = 0x7c, kNan = 0x7e;
  static constexpr bool kInfinity = true;
};

inline constexpr std::uint32_t kNanF32 = 0x7fc00000;
inline constexpr std::uint64_t kNanF64 = 0x7ff8000000000000;

// Inlined without exception: these are instantiated in files of several instruction sets, and a shared out-of-line copy
// would hand one file's instructions to a processor that lacks them.
#define TUTTI_INLINE __attribute__((always_inline)) inline

// NaN for NaN, of any payload. U: std::uint32_t or a vector of it, F: float or the vector of equal length. The high
// bits of `bits` are zero.
template <class Format, class F, class U>
TUTTI_INLINE constexpr F widen(U bits) {
  constexpr std::uint32_t shift = 23 - Format::kMantissa, rebias = 127 - Format::kBias;
  constexpr std::uint32_t sign_shift = Format::kSign == 0x80 ? 24 : 16;
  if constexpr (rebias == 0) {
    const U all = bits << shift;
    return __builtin_bit_cast(F, all);
  } else {
    const U magnitude = (bits & (Format::kSign - 1)) << shift;
    const U normal = magnitude + (rebias << 23);
    // A denormal read as 2^-(bias-1) * 1.m, less the 1: exact, and no denormal f32 is touched.
    const U one = U{} + ((rebias + 1) << 23);
    const U raised = magnitude + one;
    const F lowered = __builtin_bit_cast(F, raised) - __builtin_bit_cast(F, one);
    U result = magnitude < (1u << 23) ? __builtin_bit_cast(U, lowered) : normal;
    if constexpr (Format::kInfinity)
      result = magnitude >= (Format::kOverflow << shift) ? magnitude + (rebias << 24) : result;
    else
      result = magnitude == (Format::kNan << shift) ? U{} + kNanF32 : result;
    result = result | (bits & Format::kSign) << sign_shift;
    return __builtin_bit_cast(F, result);
  }
}

template <class Format, class U, class F>
TUTTI_INLINE constexpr U narrow(F value) {
  constexpr std::uint32_t shift = 23 - Format::kMantissa, rebias = 127 - Format::kBias;
  constexpr std::uint32_t sign_shift = Format::kSign == 0x80 ? 24 : 16;
  const U all = __builtin_bit_cast(U, value);
  U result;
  if constexpr (rebias == 0) {  // f32's own exponents: the sign comes along, and a carry out of the largest is infinity
    result = (all + ((1u << (shift - 1)) - 1) + ((all >> shift) & 1u)) >> shift;
  } else {
    const U magnitude = all & 0x7fffffffu;
    result = (magnitude + ((1u << (shift - 1)) - 1 - (rebias << 23)) + ((magnitude >> shift) & 1u)) >> shift;
    // Below the smallest normal: let the adder round to the format's last place.
    const U place = U{} + ((rebias + 1 + shift) << 23);
    const F sum = __builtin_bit_cast(F, magnitude) + __builtin_bit_cast(F, place);
    result = magnitude < ((rebias + 1) << 23) ? __builtin_bit_cast(U, sum) - place : result;
    result = result < Format::kOverflow ? result : U{} + Format::kOverflow;
    result = result | ((all >> sign_shift) & Format::kSign);
  }
  return value == value ? result : U{} + Format::kNan;
}

template <class Format>
TUTTI_INLINE constexpr float to_f32(typename Format::Bits bits) {
  const float value = widen<Format, float, std::uint32_t>(std::uint32_t(bits));
  return value == value ? value : __builtin_bit_cast(float, kNanF32);
}
template <class Format>
TUTTI_INLINE constexpr typename Format::Bits from_f32(float value) {
  return typename Format::Bits(narrow<Format, std::uint32_t, float>(value));
}

// To f32 with round-to-odd, after which rounding to any narrower format is as good as rounding once from f64
// (Boldo and Melquiond, "Emulation of FMA and correctly rounded sums: proved algorithms using rounding to odd", 2008).
TUTTI_INLINE constexpr float round_to_odd(double value) {
  const std::uint64_t all = __builtin_bit_cast(std::uint64_t, value);
  const std::uint32_t sign = std::uint32_t(all >> 32) & 0x80000000u;
  const std::uint64_t magnitude = all & 0x7fffffffffffffff;
  std::uint32_t result = 0;
  if (magnitude > 0x7ff0000000000000) {
    return __builtin_bit_cast(float, kNanF32);
  } else if (magnitude >=
             0x47f0000000000000) {  // from 2^128: infinity stays, the rest is the largest f32, which is odd
    result = magnitude == 0x7ff0000000000000 ? 0x7f800000 : 0x7f7fffff;
  } else if (magnitude >= 0x3810000000000000) {  // from 2^-126: normal in f32
    const std::uint64_t rebased = magnitude - (std::uint64_t(1023 - 127) << 52);
    result = std::uint32_t(rebased >> 29) | std::uint32_t((rebased & 0x1fffffff) != 0);
  } else if (magnitude != 0) {
    const std::uint32_t exponent = std::uint32_t(magnitude >> 52);
    const std::uint64_t mantissa = (magnitude & 0xfffffffffffff) | (exponent ? std::uint64_t(1) << 52 : 0);
    const std::uint32_t down = 29 + (1023 - 126) - exponent;  // bits below f32's last place, 2^-149
    result = down > 63
                 ? 1
                 : std::uint32_t(mantissa >> down) | std::uint32_t((mantissa & ((std::uint64_t(1) << down) - 1)) != 0);
  }
  return __builtin_bit_cast(float, result | sign);
}
template <class Format>
TUTTI_INLINE constexpr typename Format::Bits from_f64(double value) {
  return from_f32<Format>(round_to_odd(value));
}

}  // namespace tutti::kernels
