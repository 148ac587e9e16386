#pragma once
// What the kernels must compute, written from the definitions of the formats: values are long doubles (64 bits of
// mantissa or more hold every element type exactly), taken apart and put together by ldexp and nearbyint. Shares no
// code with kernels/.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include <kernels/kernels.h>

namespace tutti::kernels::reference {

using Bits = std::uint64_t;
using Real = long double;
static_assert(std::numeric_limits<Real>::digits >= 64);

inline constexpr DataType kTypes[] = {DataType::i8,  DataType::u8,  DataType::i32,    DataType::u32,
                                      DataType::i64, DataType::u64, DataType::f16,    DataType::bf16,
                                      DataType::f32, DataType::f64, DataType::f8e4m3, DataType::f8e5m2};
inline constexpr DataType kNarrow[] = {DataType::f16, DataType::bf16, DataType::f8e4m3, DataType::f8e5m2};
inline constexpr ReduceOp kOps[] = {ReduceOp::sum, ReduceOp::prod, ReduceOp::min,
                                    ReduceOp::max, ReduceOp::avg,  ReduceOp::premul_sum};

struct Layout {
  int mantissa, bias;
  bool infinity;
  Bits nan, sign;
  Real largest;
};
inline Layout layout_of(DataType type) {
  switch (type) {
    case DataType::f16: return {10, 15, true, 0x7e00, 0x8000, 65504};
    case DataType::bf16: return {7, 127, true, 0x7fc0, 0x8000, std::ldexp(Real(255), 120)};
    case DataType::f32: return {23, 127, true, 0x7fc00000, 0x80000000, std::numeric_limits<float>::max()};
    case DataType::f64: return {52, 1023, true, 0x7ff8000000000000, Bits(1) << 63, std::numeric_limits<double>::max()};
    case DataType::f8e4m3: return {3, 7, false, 0x7f, 0x80, 448};
    case DataType::f8e5m2: return {2, 15, true, 0x7e, 0x80, 57344};
    default: return {};
  }
}
inline bool is_signed(DataType type) { return type == DataType::i8 || type == DataType::i32 || type == DataType::i64; }
inline int bits_of(DataType type) { return int(size_of(type)) * 8; }
inline Bits mask_of(DataType type) { return ~Bits(0) >> (64 - bits_of(type)); }

inline bool is_nan(DataType type, Bits bits) {
  if (!is_floating(type)) return false;
  const Layout l = layout_of(type);
  const Bits magnitude = bits & (l.sign - 1);
  return l.infinity ? magnitude > ((l.sign - 1) >> l.mantissa << l.mantissa) : magnitude == l.sign - 1;
}

inline std::int64_t integer_value(DataType type, Bits bits) {  // u64 as its two's complement
  const int unused = 64 - bits_of(type);
  return is_signed(type) ? std::int64_t(bits << unused) >> unused : std::int64_t(bits);
}

inline Real decode(DataType type, Bits bits) {
  if (!is_floating(type)) return type == DataType::u64 ? Real(bits) : Real(integer_value(type, bits));
  const Layout l = layout_of(type);
  if (is_nan(type, bits)) return std::numeric_limits<Real>::quiet_NaN();
  const Real sign = bits & l.sign ? -1 : 1;
  const Bits magnitude = bits & (l.sign - 1);
  const int exponent = int(magnitude >> l.mantissa);
  const Real fraction = Real(magnitude & ((Bits(1) << l.mantissa) - 1));
  if (l.infinity && magnitude == ((l.sign - 1) >> l.mantissa << l.mantissa))
    return sign * std::numeric_limits<Real>::infinity();
  if (exponent == 0) return sign * std::ldexp(fraction, 1 - l.bias - l.mantissa);
  return sign * std::ldexp(fraction + std::ldexp(Real(1), l.mantissa), exponent - l.bias - l.mantissa);
}

// Rounded once: to nearest even for floats; truncated and saturated for integers.
inline Bits encode(DataType type, Real value) {
  if (!is_floating(type)) {
    if (std::isnan(value)) return 0;
    const Real low = is_signed(type) ? -std::ldexp(Real(1), bits_of(type) - 1) : 0;
    const Real high = std::ldexp(Real(1), bits_of(type) - is_signed(type)) - 1;
    value = std::trunc(std::min(std::max(value, low), high));
    return (value < 0 ? Bits(std::int64_t(value)) : Bits(value)) & mask_of(type);
  }
  const Layout l = layout_of(type);
  if (std::isnan(value)) return l.nan;
  const Bits sign = std::signbit(value) ? l.sign : 0;
  const Real magnitude = std::fabs(value);
  if (magnitude == 0) return sign;
  const Bits infinity = l.infinity ? (l.sign - 1) >> l.mantissa << l.mantissa : l.sign - 2;
  if (std::isinf(magnitude)) return sign | infinity;
  const int place = std::max(std::ilogb(magnitude), 1 - l.bias) - l.mantissa;  // of the last bit
  const Real steps = std::nearbyint(std::ldexp(magnitude, -place));
  const Real rounded = std::ldexp(steps, place);
  if (rounded > l.largest) return sign | infinity;
  if (rounded < std::ldexp(Real(1), 1 - l.bias)) return sign | Bits(steps);
  const int exponent = std::ilogb(rounded);
  return sign | (Bits(exponent + l.bias) << l.mantissa) |
         (Bits(std::ldexp(rounded, l.mantissa - exponent)) - (Bits(1) << l.mantissa));
}

// One element's reduction. Floats: in F (float or double), along the documented tree.
template <class F>
F float_tree(ReduceOp op, const std::vector<F>& values, std::size_t low, std::size_t high) {
  if (high - low == 1) return values[low];
  std::size_t step = 1;
  while (step < high - low) step <<= 1;
  const std::size_t middle = low + step / 2;
  const F a = float_tree(op, values, low, middle), b = float_tree(op, values, middle, high);
  if (op != ReduceOp::min && op != ReduceOp::max) return op == ReduceOp::prod ? a * b : a + b;
  if (std::isnan(a) || std::isnan(b)) return std::numeric_limits<F>::quiet_NaN();
  const bool a_first = a != b ? a < b : std::signbit(a);
  return a_first == (op == ReduceOp::min) ? a : b;
}
template <class F>
Bits reduce_floats(DataType type, ReduceOp op, const std::vector<Bits>& inputs, std::uint32_t divide_by) {
  std::vector<F> values;
  for (const Bits bits : inputs) values.push_back(F(decode(type, bits)));  // exact
  F result = float_tree(op, values, 0, values.size());
  if (divide_by != 1) result = result / F(divide_by);
  return encode(type, Real(result));
}
inline Bits reduce_integers(DataType type, ReduceOp op, const std::vector<Bits>& inputs, std::uint32_t divide_by) {
  Bits result = inputs[0];
  for (std::size_t i = 1; i < inputs.size(); ++i) {
    const bool less =
        type == DataType::u64 ? inputs[i] < result : integer_value(type, inputs[i]) < integer_value(type, result);
    if (op == ReduceOp::min)
      result = less ? inputs[i] : result;
    else if (op == ReduceOp::max)
      result = less ? result : inputs[i];
    else if (op == ReduceOp::prod)
      result *= inputs[i];
    else
      result += inputs[i];
    result &= mask_of(type);
  }
  if (type == DataType::u64) return result / divide_by;
  return Bits(integer_value(type, result) / std::int64_t(divide_by)) & mask_of(type);
}
inline Bits reduce(DataType type, ReduceOp op, const std::vector<Bits>& inputs, std::uint32_t divide_by) {
  if (!is_floating(type)) return reduce_integers(type, op, inputs, divide_by);
  return type == DataType::f64 ? reduce_floats<double>(type, op, inputs, divide_by)
                               : reduce_floats<float>(type, op, inputs, divide_by);
}

// Elements in memory that starts at any alignment.
inline Bits get(DataType type, const std::byte* base, std::size_t i) {
  Bits bits = 0;
  std::memcpy(&bits, base + i * size_of(type), size_of(type));  // little endian, as all that we run on
  return bits;
}
inline void put(DataType type, std::byte* base, std::size_t i, Bits bits) {
  std::memcpy(base + i * size_of(type), &bits, size_of(type));
}

enum class Fill {
  moderate,
  wild
};  // values near 1 of both signs, which cancel; or any bits: denormals, infinities, NaNs

inline Bits draw(DataType type, Fill fill, std::mt19937_64& random) {
  if (fill == Fill::wild || !is_floating(type)) return random() & mask_of(type);
  return encode(type, Real(std::normal_distribution<double>(0, 2)(random)));
}

inline std::vector<SimdLevel> levels() { return {simd_levels().begin(), simd_levels().end()}; }

// Sets a level for a scope.
class LevelScope {
 public:
  explicit LevelScope(SimdLevel level) : before_(simd_level()) { set_simd_level(level); }
  ~LevelScope() { set_simd_level(before_); }
  LevelScope(const LevelScope&) = delete;
  LevelScope& operator=(const LevelScope&) = delete;

 private:
  SimdLevel before_;
};

}  // namespace tutti::kernels::reference
