#pragma once
// What one SIMD level offers: a table of loops. Filled by kernels/body.h, once per instruction set; chosen by
// kernels.cpp. Only plain types here: this header is seen by files that are compiled for processors which others do not
// have.
#include <cstddef>
#include <cstdint>

namespace tutti::kernels {

enum Combine { kSum, kProd, kMin, kMax, kCombineCount };
inline constexpr int kTypes = 12;       // rows in the order of DataType
inline constexpr int kNarrowTypes = 4;  // f16, bf16, f8e4m3, f8e5m2
inline constexpr std::size_t kMostInputs = 64;

// 1 <= n <= kMostInputs, divide_by >= 1.
using ReduceLoop = void (*)(std::byte* out, const std::byte* const* inputs, std::size_t n, std::size_t count,
                            std::uint32_t divide_by);
// `factor` is one value of the accumulation type: f32 for narrow floats, the type itself otherwise.
using ScaleLoop = void (*)(std::byte* out, const std::byte* in, std::size_t count, const void* factor);
using ConvertLoop = void (*)(std::byte* out, const std::byte* in, std::size_t count);

struct Table {
  ReduceLoop reduce[kTypes][kCombineCount];
  ScaleLoop scale[kTypes];
  ConvertLoop to_f32[kNarrowTypes];
  ConvertLoop from_f32[kNarrowTypes];
};

// nullptr: not built for this kind of processor. Whether this very processor can run it is kernels.cpp's question.
const Table* scalar_table();
const Table* avx2_table();
const Table* avx512_table();
const Table* neon_table();

}  // namespace tutti::kernels
