#include "python/csrc/lists.h"

#include <ATen/Functions.h>
#include <ATen/core/grad_mode.h>

#include <string>

#include "python/csrc/failure.h"

namespace tutti_torch {
namespace {

int64_t elements(const Tensors& tensors) {
  int64_t count = 0;
  for (const at::Tensor& t : tensors) count += t.numel();
  return count;
}

// Undefined: they do not lie one behind another.
at::Tensor view_of(const Tensors& tensors) {
  if (tensors.size() == 1 && tensors[0].is_contiguous()) return tensors[0].view({-1});
  int64_t end = tensors[0].storage_offset();
  for (const at::Tensor& t : tensors) {
    if (!t.is_contiguous() || !t.is_alias_of(tensors[0]) || t.storage_offset() != end) return {};
    end += t.numel();
  }
  return tensors[0].as_strided({elements(tensors)}, {1}, tensors[0].storage_offset());
}

at::Tensor buffer_for(const Tensors& tensors) { return at::empty({elements(tensors)}, tensors[0].options()); }

// Calls each(tensor, its part of the run).
template <class Each>
void with_parts(const Tensors& tensors, const at::Tensor& run, Each each) {
  int64_t at = 0;
  for (const at::Tensor& t : tensors) {
    each(t, run.narrow(0, at, t.numel()).view(t.sizes()));
    at += t.numel();
  }
}

}  // namespace

void expect_dense(const Tensors& tensors, const char* call, const char* what) {
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const at::Tensor& t = tensors[i];
    const std::string name = std::string(call) + ": " + what + (tensors.size() > 1 ? "[" + std::to_string(i) + "]" : "");
    if (!t.defined()) refuse(name + " is not defined");
    if (t.layout() != at::kStrided) unsupported(name + " is " + c10::str(t.layout()) + "; wanted a dense tensor: .to_dense()");
    if (!t.device().is_cpu() && !t.device().is_cuda()) unsupported(name + " is on " + t.device().str() + "; tutti moves memory of the host and of CUDA devices: .cpu()");
    if (t.device() != tensors[0].device()) refuse(name + " is on " + t.device().str() + ", the first one on " + tensors[0].device().str());
    if (t.scalar_type() != tensors[0].scalar_type())
      refuse(name + " is of type " + at::toString(t.scalar_type()) + ", the first one of type " + at::toString(tensors[0].scalar_type()));
  }
}

at::Tensor run_of(const Tensors& tensors) {
  const at::NoGradGuard no_grad;
  if (const at::Tensor view = view_of(tensors); view.defined()) return view;
  const at::Tensor run = buffer_for(tensors);
  with_parts(tensors, run, [](const at::Tensor& t, at::Tensor part) { part.copy_(t); });
  return run;
}

Landing landing_for(const Tensors& tensors) {
  const at::NoGradGuard no_grad;
  if (const at::Tensor view = view_of(tensors); view.defined()) return {view, nullptr};
  const at::Tensor run = buffer_for(tensors);
  return {run, [tensors, run] { with_parts(tensors, run, [](at::Tensor t, const at::Tensor& part) { t.copy_(part); }); }};
}

}  // namespace tutti_torch
