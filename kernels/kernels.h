#pragma once
// Bytes as numbers: n-input reductions, scaling and casts on host memory. Knows nothing of ranks or wires.
//
// One order: every reduction combines its inputs in the balanced binary tree over their indices, tree(lo, hi) =
// tree(lo, mid) op tree(mid, hi) with mid = lo + the largest power of two below (hi - lo). SIMD body and scalar tail
// agree bit for bit, and so do all SIMD levels. Narrow floats (f16, bf16, f8) are widened to f32, combined in f32 and
// rounded once, to nearest even (f8e4m3: saturating to +-448 like OCP's fn format without infinities; f8e5m2: overflow
// to infinity). NaN: sum and prod give the quiet NaN of the type (one fixed payload); min and max give it when any
// input is NaN. min(-0, +0) = -0, max(-0, +0) = +0. Integers wrap.
#include <cstddef>
#include <cstdint>
#include <span>
#include <tutti/types.h>

namespace tutti::kernels {

inline constexpr std::size_t kMaxInputs = 64;   // of one pass; the executor splits larger ones along the tree

// Folded into the last pass of a reduction. Integers with divide: truncating division of the wrapped sum.
struct Finish {
  std::uint32_t divide_by = 1;   // avg: the rank count. Floats: multiplied in the accumulation type, by division.
};

// out[i] = finish(tree(inputs[0][i] .. inputs[n-1][i])), i < count. 1 <= n <= kMaxInputs. `out` may equal any input
// exactly, partial overlap is not allowed. No alignment needed. avg and premul_sum reduce like sum (Finish and scale()
// do the rest).
void reduce(DataType type, ReduceOp op, std::byte* out, std::span<const std::byte* const> inputs, std::size_t count,
            Finish finish = {});

// out[i] = factor * in[i]; the factor is first rounded to `type` (integers:
// truncated), the product once. out may equal in.
void scale(DataType type, std::byte* out, const std::byte* in, std::size_t count, double factor);

// Value conversion, rounding to nearest even; integers from floats truncate and saturate. Buffers must not overlap.
void cast(DataType to, std::byte* out, DataType from, const std::byte* in, std::size_t count);

enum class SimdLevel { scalar, avx2, avx512, neon };
SimdLevel simd_level();                 // what is in use: the best that processor and build have
const char* name_of(SimdLevel level);   // "avx512"
std::span<const SimdLevel> simd_levels();   // all that this machine can run, scalar first
// For tests and TUTTI_SIMD: false when this machine cannot run it. Not thread-safe against running kernels.
bool set_simd_level(SimdLevel level);

}  // namespace tutti::kernels
