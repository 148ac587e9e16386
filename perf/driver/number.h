#pragma once
// The value of one element of any type. Written apart from the library's kernels, so that the benchmarks' expected
// values come from an independent path; slow, and for single elements only.
#include <cstddef>
#include <cstdint>

#include <tutti/types.h>

namespace tutti::perf {

// The format of a floating type: significand bits (with the hidden one), exponent bits and bias. f8e4m3 has no
// infinities and one NaN pattern a sign; the others are as IEEE 754.
struct FloatFormat {
  int significand = 0, exponent = 0, bias = 0;
  bool infinities = true;
};
FloatFormat format_of(DataType type);

double unit_roundoff(DataType type);  // half of the distance from 1 to the next number: 2^-significand
double smallest_step(DataType type);  // the smallest positive (subnormal) number

std::uint64_t load_bits(DataType type, const std::byte* at);
void store_bits(DataType type, std::uint64_t bits, std::byte* at);

// Floating types only. encode rounds to nearest even; beyond the largest number it gives infinity, for f8e4m3 the
// largest.
double decode(DataType type, std::uint64_t bits);
std::uint64_t encode(DataType type, double value);

// Integer types only: sign-extended where the type is signed.
std::int64_t sign_extend(DataType type, std::uint64_t bits);
constexpr bool is_signed_integer(DataType type) {
  return type == DataType::i8 || type == DataType::i32 || type == DataType::i64;
}

}  // namespace tutti::perf
