#include "trainer/precision.h"

#include <cstring>

namespace tutti::trainer {

std::optional<Precision> precision_from(std::string_view name) {
  if (name == "f32") return Precision::f32;
  if (name == "bf16") return Precision::bf16;
  if (name == "f16") return Precision::f16;
  return std::nullopt;
}

std::string_view name_of(Precision precision) {
  return precision == Precision::f32 ? "f32" : precision == Precision::bf16 ? "bf16" : "f16";
}

void round_to(Precision precision, std::size_t n, const float* x, float* out) {
  if (precision == Precision::bf16) {
    for (std::size_t i = 0; i < n; ++i) out[i] = as_bf16(x[i]);
  } else if (precision == Precision::f16) {
    for (std::size_t i = 0; i < n; ++i) out[i] = as_f16(x[i]);
  } else if (x != out) {
    std::memcpy(out, x, n * sizeof(float));
  }
}

void pack(Precision precision, std::size_t n, const float* x, std::uint16_t* out) {
  if (precision == Precision::bf16) for (std::size_t i = 0; i < n; ++i) out[i] = bf16_bits(as_bf16(x[i]));
  else for (std::size_t i = 0; i < n; ++i) out[i] = f16_bits(as_f16(x[i]));
}

void unpack(Precision precision, std::size_t n, const std::uint16_t* x, float* out) {
  if (precision == Precision::bf16) for (std::size_t i = 0; i < n; ++i) out[i] = from_bf16(x[i]);
  else for (std::size_t i = 0; i < n; ++i) out[i] = from_f16(x[i]);
}

}  // namespace tutti::trainer
