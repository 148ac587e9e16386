#pragma once
// What stands between the two products of a block's MLP: GELU in its tanh form (GPT-2), or SwiGLU (Shazeer 2020), which takes
// two inputs a unit and gives silu(gate) * up.
#include <cstddef>

#include "trainer/threads.h"

namespace tutti::trainer {

enum class ActivationKind : bool { gelu, swiglu };

// Numbers that one output needs.
constexpr std::size_t inputs_of(ActivationKind kind) { return kind == ActivationKind::gelu ? 1 : 2; }

// y[rows][width] from x[rows][inputs_of(kind) * width]; for swiglu a row of x is all gates, then all ups.
template <class T>
void activation_forward(Threads& threads, ActivationKind kind, std::size_t rows, std::size_t width, const T* x, T* y);

// dx = the gradient for x, given dy. dx and dy must not overlap.
template <class T>
void activation_backward(Threads& threads, ActivationKind kind, std::size_t rows, std::size_t width, const T* x, const T* dy, T* dx);

}  // namespace tutti::trainer
