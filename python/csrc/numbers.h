#pragma once
// Numbers: how torch's element types and reductions become tutti's.
#include <tutti/types.h>

#include <ATen/core/Tensor.h>
#include <torch/csrc/distributed/c10d/Types.hpp>

namespace tutti_torch {

// What a tensor's memory is to the library: so many numbers of that type.
struct Numbers {
  tutti::DataType type = tutti::DataType::u8;
  std::size_t per_element = 1;
  std::size_t count(const at::Tensor& tensor) const { return std::size_t(tensor.numel()) * per_element; }
};

// For calls that move and do not compute: every type travels, those that the library does not have as bytes.
Numbers as_moved(const at::Tensor& tensor);

// How a reduction of tensors of one type is done.
struct Reduction {
  at::ScalarType carrier;        // tensors are converted to it and back: int16 is reduced as int32
  Numbers numbers;               // of a tensor of the carrier type; complex ones are pairs
  tutti::ReduceOp op = tutti::ReduceOp::sum;
  double factor = 1.0;           // premul_sum
  bool fold = false;             // the library has no such reduction: gather, then fold() on each rank
};

// unsupported: the reduction means nothing for the type; the text says so. `call` is for the text.
Reduction reduction_of(at::ScalarType type, const c10d::ReduceOp& op, const char* call);

// Of `rows`, whose first dimension is the ranks. For BAND, BOR and BXOR.
at::Tensor fold(const at::Tensor& rows, c10d::ReduceOp::RedOpType op);

}  // namespace tutti_torch
