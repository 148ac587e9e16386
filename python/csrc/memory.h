#pragma once
// Memory: tensors in memory from tutti::allocate, which the ranks of this host read in place.
#include <ATen/core/Tensor.h>

namespace tutti_torch {

// Zeroed; freed with the last tensor on it. Throws Failure: out_of_resources.
at::Tensor zeros(at::IntArrayRef sizes, at::ScalarType type);

}  // namespace tutti_torch
