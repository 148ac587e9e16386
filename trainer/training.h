#pragma once
// A training run's state and its step. Reads data, computes, exchanges, changes weights; writes no file and prints nothing.
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "trainer/gradient_sum.h"
#include "trainer/host_backend.h"
#include "trainer/loss_scaler.h"
#include "trainer/model.h"
#include "trainer/optimizer.h"
#include "trainer/options.h"
#include "trainer/sampler.h"
#include "trainer/sha256.h"
#include "trainer/shared_weights.h"
#include "trainer/tokens.h"
#include "trainer/tree_sum.h"

namespace tutti::trainer {

// Of one step, on this rank; the first block is the same on all ranks.
struct StepResult {
  long step = 0;                      // from 1
  double loss = 0, rate = 0, norm = 0;
  bool skipped = false;               // not a number, and told to go on: the weights were left alone
  bool overflowed = false;            // skipped, since a gradient overflowed f16: the next step's loss scale is half of this one's
  double loss_scale = 1;              // that this step's gradients were multiplied by

  double seconds = 0, compute_seconds = 0, exposed_seconds = 0, data_seconds = 0;
  double exchange_seconds = 0;        // communication was under way, exposed or beside computing
  double backward_seconds = 0;        // of the backward passes; part of compute_seconds where weights are not waited for in them
  std::size_t operations = 0, bytes = 0;      // of communication
};

// A unit's numbers, whole: what checkpoints are made of.
struct UnitState {
  std::vector<float> weights, first, second;
};

class Training {
 public:
  // Throws Failure: more ranks than micro-batches, data that does not fit.
  // `threads`: of the host, for what is left to it.
  Training(const Options& options, Tokens tokens, Communicator& communicator, Backend<float>& backend, Threads& threads, Trace& trace);

  // Collective. Ranks whose BLAS chose other kernels cannot agree on bits: throws Failure where that matters.
  void compare_blas();
  // Rank 0's starting weights to all, compared afterwards.
  void start();
  // Throws Failure with the first bad tensor when a loss or gradient is not a number.
  StepResult step();
  long steps_done() const { return steps_; }
  void set_steps_done(long steps) { steps_ = steps; }
  LossScaler& scaler() { return scaler_; }

  // Collective. `there` is whole on rank `source` and is set on all.
  void set_unit(std::size_t unit, UnitState& there, int source = 0);
  // Collective, whole on every rank. The averages are left out of Contents::weights.
  UnitState unit(std::size_t unit, Contents contents = Contents::all);
  // Collective. Of all weights as f32 in the order of the layout, without padding.
  Digest weights_hash();
  // Collective. Throws Failure that names the first tensor that differs and the rank.
  void compare_ranks();

  const Layout& layout() const { return layout_; }
  const Sampler& sampler() const { return sampler_; }
  const Tokens& tokens() const { return tokens_; }
  Wire& wire() { return wire_; }
  std::string memory_text() const;

 private:
  double compute(std::size_t number, bool counts, bool last, StepResult& result);
  // `finite`: whether all gradients are, on all ranks; the same answer everywhere.
  double norm_and_loss(std::vector<double>& losses, double& loss, bool& finite);
  [[noreturn]] void blame(long step, double loss);
  void update(double rate, double norm);
  std::vector<float> on_host(const float* at, std::size_t count);
  std::vector<float> weights_of(const Tensor& tensor);      // collective

  const Options options_;
  const Tokens tokens_;
  Trace& trace_;
  Backend<float>& backend_;
  std::optional<HostBackend<float>> host_;      // of the optimizer, where it is not in the GPU's memory
  const Layout layout_;
  Wire wire_;
  const Shares shares_;
  const MicroBatches own_;
  const std::size_t rounds_;          // forward and backward passes a step on each rank
  const Sampler sampler_;
  std::unique_ptr<SharedWeights> weights_;
  std::unique_ptr<GradientSum> gradients_;
  Optimizer optimizer_;
  Model<float> model_;
  std::vector<Token> inputs_, targets_;
  Array<Token> there_inputs_, there_targets_;   // where the model sees them
  std::vector<double> squares_;                 // of blocks of the gradient
  Array<double> there_squares_;
  LossScaler scaler_;
  long steps_ = 0;
};

}  // namespace tutti::trainer
