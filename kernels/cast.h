#pragma once
// Conversion between any two element types, one value at a time through an exact intermediate. The fast ways between
// f32 and the narrow floats are not here but in kernels/body.h; kernels.cpp chooses.
#include <tutti/types.h>
#include <cstddef>
#include <cstdint>

namespace tutti::kernels {

// Floats round to nearest even, once, also from f64 and from 64-bit integers; NaN becomes the quiet NaN of the target.
// Integers from floats truncate and saturate, NaN gives 0; integers from integers wrap. No overlap, any alignment.
void cast_values(DataType to, std::byte* out, DataType from, const std::byte* in, std::size_t count);

// A factor rounded to `type`, as a value of the accumulation type in the first bytes: f32 for narrow floats.
std::uint64_t rounded_factor(DataType type, double factor);

}  // namespace tutti::kernels
