#pragma once
// `train`: the command line of a training run, and the run itself from start to end.
#include <CLI/CLI.hpp>
#include <functional>
#include <string>

#include "trainer/options.h"

namespace tutti::trainer {

// The shape of a model by --preset and the flags that change single sizes; `resolve` applies both and checks the result.
struct ModelFlags {
  std::string preset = "tiny", position, norm, activation;
  std::size_t layers = 0, heads = 0, kv_heads = 0, width = 0, hidden = 0, vocabulary = 0, context = 0;      // 0: as in the preset
  bool no_bias = false;
  void add(CLI::App& app);
  ModelConfig resolve() const;        // throws Failure
};

// Adds the flags of a run to `app`; the returned function runs it and gives the exit status.
std::function<int()> add_train(CLI::App& app);

}  // namespace tutti::trainer
