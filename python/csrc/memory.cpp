#include "python/csrc/memory.h"

#include <ATen/Functions.h>
#include <tutti/memory.h>

#include "python/csrc/failure.h"

namespace tutti_torch {

at::Tensor zeros(at::IntArrayRef sizes, at::ScalarType type) {
  const int64_t bytes = c10::multiply_integers(sizes) * int64_t(c10::elementSize(type));
  const auto options = at::TensorOptions().dtype(type);
  if (bytes == 0) return at::zeros(sizes, options);
  const auto memory = tutti::allocate(std::size_t(bytes));
  check(memory.status());
  return at::from_blob(*memory, sizes, tutti::deallocate, options);
}

}  // namespace tutti_torch
