#pragma once
// The 16-bit floats of mixed precision: bf16 (8 bits of mantissa, f32's range) and IEEE's f16 (11 bits, up to 65504). Weights, sums and
// the residual stream are f32; what goes into a matrix product is rounded to these first, and sums are f32. Rounding is to the nearest,
// ties to even; what is beyond the range becomes infinite; NaN stays NaN. Written without branches, so that loops become vector code.
#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace tutti::trainer {

enum class Precision { f32, bf16, f16 };
std::optional<Precision> precision_from(std::string_view name);
std::string_view name_of(Precision precision);

constexpr float as_bf16(float x) {
  const auto u = std::bit_cast<std::uint32_t>(x);
  const bool nan = (u & 0x7fffffffu) > 0x7f800000u;
  const std::uint32_t rounded = u + 0x7fffu + (u >> 16 & 1u);
  return std::bit_cast<float>((nan ? u | 0x400000u : rounded) & 0xffff0000u);
}

constexpr float as_f16(float x) {
  const auto u = std::bit_cast<std::uint32_t>(x);
  const std::uint32_t sign = u & 0x80000000u, size = u & 0x7fffffffu;
  const std::uint32_t normal = (size + 0xfffu + (size >> 13 & 1u)) & ~0x1fffu;
  // Below 2^-14 steps are 2^-24, those of f32 between 0.5 and 1.
  const auto small = std::bit_cast<std::uint32_t>((std::bit_cast<float>(size < 0x38800000u ? size : 0u) + 0.5f) - 0.5f);
  const std::uint32_t finite = size < 0x38800000u ? small : normal;
  const std::uint32_t limited = finite >= 0x47800000u ? 0x7f800000u : finite;
  return std::bit_cast<float>(sign | (size > 0x7f800000u ? 0x7fc00000u : limited));
}

// Of a number that is one in 16 bits already, and back.
constexpr std::uint16_t bf16_bits(float x) { return std::uint16_t(std::bit_cast<std::uint32_t>(x) >> 16); }
constexpr float from_bf16(std::uint16_t bits) { return std::bit_cast<float>(std::uint32_t(bits) << 16); }
constexpr std::uint16_t f16_bits(float x) {
  const auto u = std::bit_cast<std::uint32_t>(x);
  const std::uint32_t size = u & 0x7fffffffu;
  const auto small = std::uint32_t(std::int32_t(std::bit_cast<float>(size < 0x38800000u ? size : 0u) * 0x1p24f));
  const std::uint32_t normal = (size >> 13) - (112u << 10);
  const std::uint32_t large = size > 0x7f800000u ? 0x7e00u : 0x7c00u;
  return std::uint16_t((u >> 16 & 0x8000u) | (size >= 0x7f800000u ? large : size < 0x38800000u ? small : normal));
}
constexpr float from_f16(std::uint16_t bits) {
  const std::uint32_t sign = std::uint32_t(bits & 0x8000u) << 16, size = bits & 0x7fffu;
  const auto small = std::bit_cast<std::uint32_t>(float(std::int32_t(size & 0x3ffu)) * 0x1p-24f);
  const std::uint32_t normal = (size << 13) + (112u << 23);
  const std::uint32_t large = size > 0x7c00u ? 0x7fc00000u : 0x7f800000u;
  return std::bit_cast<float>(sign | (size >= 0x7c00u ? large : size < 0x400u ? small : normal));
}

// out[i] = x[i] rounded; in place where they are the same. With f32 nothing but a copy.
void round_to(Precision precision, std::size_t n, const float* x, float* out);
// Not for f32.
void pack(Precision precision, std::size_t n, const float* x, std::uint16_t* out);      // rounds
void unpack(Precision precision, std::size_t n, const std::uint16_t* x, float* out);

}  // namespace tutti::trainer
