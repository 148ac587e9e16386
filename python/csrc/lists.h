#pragma once
// Lists: a list of tensors as one run of memory, as tutti's calls want blocks of ranks. Tensors that lie one behind another
// anyway (chunks of one) are used where they are; others are staged through a buffer.
#include <ATen/core/Tensor.h>

#include <functional>
#include <vector>

namespace tutti_torch {

using Tensors = std::vector<at::Tensor>;

// Dense tensors in host memory, or all on one GPU, of one type. Else refuses, naming `call` and the tensor's place in `what`.
void expect_dense(const Tensors& tensors, const char* call, const char* what);

// The elements of all, one behind another, as a tensor of one dimension: a view, or a copy.
at::Tensor run_of(const Tensors& tensors);

// Memory for the elements of all, with a step that takes them to their places; empty where they are written in place.
struct Landing {
  at::Tensor run;
  std::function<void()> then;
};
Landing landing_for(const Tensors& tensors);

}  // namespace tutti_torch
