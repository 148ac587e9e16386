#pragma once
// What a run would need, by arithmetic: memory and traffic of each way to be data parallel, and the step's time that follows from
// the speed of computing and of the link.
#include <string>
#include <vector>

#include "trainer/model_config.h"
#include "trainer/precision.h"

namespace tutti::trainer {

struct PlanInput {
  ModelConfig model;
  std::size_t batch = 4, micro_batches = 8;     // as in Options
  int ranks = 2;
  bool recompute = false;
  Precision precision = Precision::f32;         // --dtype
  bool narrow_wire = false;                     // --wire bf16
  double link_bytes = 125e6;                    // a second, of each rank in each direction
  double flops = 100e9;                         // a second and rank
  double memory_bytes = 0;                      // of a rank; 0: unknown
};

// Of one rank and one step.
struct PlanRow {
  int zero;
  double weights, gradients, optimizer, activations;      // bytes
  double sent;                                            // bytes
  double seconds;                                         // with communication beside backward where the way allows it
  double memory() const { return weights + gradients + optimizer + activations; }
};

// Activations of one micro-batch: what Model holds.
double activation_bytes(const PlanInput& input);
std::vector<PlanRow> plan(const PlanInput& input);        // ddp, ZeRO-1, 2, 3
std::string plan_text(const PlanInput& input);

}  // namespace tutti::trainer
