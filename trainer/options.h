#pragma once
// What a training run is told to do: a value. The command line fills it (train_command.cpp).
#include <cstddef>
#include <cstdint>
#include <string>

#include "trainer/model_config.h"
#include "trainer/optimizer.h"
#include "trainer/precision.h"
#include "trainer/schedule.h"

namespace tutti::trainer {

enum class OnNan : bool { stop, skip };
enum class Contents : bool { weights, all };      // of a checkpoint: light ones cannot be gone on from

struct Options {
  ModelConfig model;
  // A step is micro_batches * batch samples of model.context tokens, whatever the number of ranks.
  std::size_t batch = 4, micro_batches = 8;
  long steps = 50;
  Schedule schedule;                        // its `steps` are these
  AdamW adamw;
  double clip = 1.0;                        // largest norm of the gradient; 0: as it comes
  float dropout = 0;
  std::uint64_t seed = 1;
  std::string data;                         // a file; "": the generated text
  std::string tokenizer;                    // cuts a text into tokens (bpe.h); "": a byte is a token
  bool drop_last = false;
  bool recompute = false;
  bool deterministic = false;
  Precision precision = Precision::f32;     // of matrix products and of what is kept for the backward pass
  bool narrow_wire = false;                 // gradients travel as bf16
  int threads = 0;                          // 0: the cores of this host, shared out among its ranks
  int gpu = -1;                             // the number of the GPU to calculate on; -1: the processor
  bool offload = false;                     // the optimizer's state stays in the host's memory
  int zero = 0;                             // 0: plain data parallelism; 1, 2, 3: ZeRO's stages
  std::size_t bucket_bytes = 4'000'000;
  long check_every = 0;                     // steps between comparisons of all ranks' weights; 0: only at the start
  OnNan on_nan = OnNan::stop;

  std::string run;                          // folder of the run; "": nothing is written
  long checkpoint_every = 1000, light_every = 100;      // steps
  long keep = 3;                            // newest checkpoints that are kept, of each kind
  std::string resume;                       // "", "auto", or a checkpoint's folder
  std::string trace;                        // file; rank r > 0 writes to file.r
  bool hash = false;                        // print the weights' at the end
  double expect_loss = 0;                   // the run fails when its last step's loss is above; 0: whatever it is

  std::size_t samples() const { return batch * micro_batches; }
};

}  // namespace tutti::trainer
