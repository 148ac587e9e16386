#pragma once
// AdamW (Loshchilov and Hutter 2019) on the share of the weights that this rank owns, and the norm of the gradient that comes
// before it. State and bits do not depend on how the weights are shared out.
#include <vector>

#include "trainer/backend.h"
#include "trainer/shares.h"

namespace tutti::trainer {

struct AdamW {
  double beta1 = 0.9, beta2 = 0.95, epsilon = 1e-8;
  double decay = 0.1;                 // of matrices, per step and unit of learning rate
};

class Optimizer {
 public:
  // State lies with `backend`, which does the arithmetic. `elsewhere`: the device whose memory weights and gradients are in, when that is
  // another one; they are then fetched for each step and brought back.
  Optimizer(const Layout& layout, const Shares& shares, const AdamW& settings, Backend<float>& backend, Device* elsewhere = nullptr);
  // One step of number `step` (from 1) for a unit's share: weights and gradient lie at its begin. The gradient counts `scale` times.
  void step(std::size_t unit, float* weights, const float* gradient, double rate, double scale, long step);
  // The averages of the gradient and of its square, of this rank's share of a unit: to the host and from it.
  void read(std::size_t unit, float* first, float* second);
  void write(std::size_t unit, const float* first, const float* second);
  std::size_t bytes() const { return 2 * shares_.owned() * sizeof(float); }

 private:
  const Shares& shares_;
  const AdamW settings_;
  Backend<float>& backend_;
  Device* const elsewhere_;
  std::vector<Array<float>> first_, second_;
  Array<float> weights_, gradient_;     // what was fetched of a unit's share
  // Of each unit: runs of its share that all decay or all do not.
  struct Run {
    std::size_t begin, end;           // from the share's begin
    bool decays;
  };
  std::vector<std::vector<Run>> runs_;
};

// The sum of squares of each block of kBlock numbers of a unit's share, into squares[block of the whole model].
void sum_squares(const Layout& layout, const Shares& shares, Backend<float>& backend, std::size_t unit, const float* gradient, double* squares);

}  // namespace tutti::trainer
