#include "perf/driver/number.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

namespace tutti::perf {

FloatFormat format_of(DataType type) {
  switch (type) {
    case DataType::f64: return {53, 11, 1023};
    case DataType::f32: return {24, 8, 127};
    case DataType::f16: return {11, 5, 15};
    case DataType::bf16: return {8, 8, 127};
    case DataType::f8e5m2: return {3, 5, 15};
    case DataType::f8e4m3: return {4, 4, 7, false};
    default: return {};
  }
}

double unit_roundoff(DataType type) { return std::ldexp(1.0, -format_of(type).significand); }

double smallest_step(DataType type) {
  const FloatFormat f = format_of(type);
  return std::ldexp(1.0, 2 - f.bias - f.significand);
}

std::uint64_t load_bits(DataType type, const std::byte* at) {
  std::uint64_t bits = 0;
  static_assert(std::endian::native == std::endian::little);
  std::memcpy(&bits, at, size_of(type));
  return bits;
}

void store_bits(DataType type, std::uint64_t bits, std::byte* at) { std::memcpy(at, &bits, size_of(type)); }

double decode(DataType type, std::uint64_t bits) {
  if (type == DataType::f64) return std::bit_cast<double>(bits);
  const FloatFormat f = format_of(type);
  const int fraction_bits = f.significand - 1;
  const std::uint64_t fraction = bits & ((1ull << fraction_bits) - 1);
  const int exponent_mask = (1 << f.exponent) - 1;
  const int exponent = int(bits >> fraction_bits) & exponent_mask;
  const bool negative = (bits >> (fraction_bits + f.exponent)) & 1;
  double magnitude = 0;
  if (f.infinities && exponent == exponent_mask) {
    magnitude = fraction ? std::numeric_limits<double>::quiet_NaN() : std::numeric_limits<double>::infinity();
  } else if (!f.infinities && exponent == exponent_mask && fraction == (1ull << fraction_bits) - 1) {
    magnitude = std::numeric_limits<double>::quiet_NaN();
  } else if (exponent == 0) {
    magnitude = std::ldexp(double(fraction), 1 - f.bias - fraction_bits);
  } else {
    magnitude = std::ldexp(double(fraction | (1ull << fraction_bits)), exponent - f.bias - fraction_bits);
  }
  return negative ? -magnitude : magnitude;
}

std::uint64_t encode(DataType type, double value) {
  if (type == DataType::f64) return std::bit_cast<std::uint64_t>(value);
  const FloatFormat f = format_of(type);
  const int fraction_bits = f.significand - 1;
  const std::uint64_t sign = std::uint64_t(std::signbit(value)) << (fraction_bits + f.exponent);
  const std::uint64_t all_exponent = ((1ull << f.exponent) - 1) << fraction_bits;
  const std::uint64_t all_fraction = (1ull << fraction_bits) - 1;
  if (std::isnan(value)) return sign | all_exponent | (f.infinities ? 1ull << (fraction_bits - 1) : all_fraction);
  const std::uint64_t largest = f.infinities ? all_exponent - 1 : (all_exponent | all_fraction) - 1;
  const double magnitude = std::fabs(value);
  if (std::isinf(magnitude)) return sign | (f.infinities ? all_exponent : largest);
  if (magnitude == 0) return sign;
  // Counted in steps of the number's binade, steps are whole numbers: nearbyint rounds half to even (the default mode).
  int exponent = std::ilogb(magnitude);
  if (exponent < 1 - f.bias) exponent = 1 - f.bias;
  const double steps = std::nearbyint(std::ldexp(magnitude, fraction_bits - exponent));
  // 2^fraction_bits steps carry into the exponent field by themselves, below it lie the subnormals.
  const std::uint64_t biased = std::uint64_t(exponent + f.bias - 1) << fraction_bits;
  const std::uint64_t bits = biased + std::uint64_t(steps);
  if (bits > largest) return sign | (f.infinities ? all_exponent : largest);
  return sign | bits;
}

std::int64_t sign_extend(DataType type, std::uint64_t bits) {
  const int shift = 64 - 8 * int(size_of(type));
  if (!is_signed_integer(type)) return std::int64_t(bits);
  return std::int64_t(bits << shift) >> shift;
}

}  // namespace tutti::perf
