#pragma once
// A checkpoint on disk: the folder RUN/checkpoint-00000020, or, without the optimizer's files, RUN/weights-00000020, with
//   model.safetensors                  the weights under Hugging Face's GPT-2 names; with several ranks model-0000R-of-0000N.safetensors
//   model.safetensors.index.json       and this, as Hugging Face splits large models
//   optimizer-0000R-of-0000N.safetensors   NAME.first and NAME.second: the averages of each weight's gradient and of its square
//   config.json                        what Hugging Face's loaders want to know, where the model is a GPT-2
//   manifest.json                      written last: model, settings, step, and each file's size and SHA-256. Without it, or where one
//                                      of them does not hold, the checkpoint is torn and is not used.
// Order of samples and dropout are functions of seed and step, so there is no more state than this.
#include <optional>
#include <string>
#include <tutti/status.h>
#include <vector>

#include "trainer/layout.h"
#include "trainer/options.h"
#include "trainer/safetensors.h"

namespace tutti::trainer {

struct Manifest {
  long step = 0;
  double loss = 0;                    // of that step
  double loss_scale = 1;              // see loss_scaler.h
  long calm_steps = 0;
  ModelConfig model;
  std::string settings;               // what decides which samples a step sees, as text
  std::vector<WrittenFile> files;
};

std::string settings_text(const Options& options);
std::string checkpoint_folder(const std::string& run, long step, Contents contents = Contents::all);

// Of a checkpoint's two files a rank; ranks are counted from 0.
std::string model_file(int rank, int ranks);
std::string optimizer_file(int rank, int ranks);

// Index, config and manifest: makes a checkpoint of files that are there. `ranks` wrote `units_of(rank)`, see unit_owner.
Status complete_checkpoint(const std::string& folder, const Manifest& manifest, const Layout& layout, int ranks);
// Which rank writes a unit.
int unit_owner(std::size_t unit, int ranks);

// With all files' sizes and hashes compared.
Result<Manifest> read_checkpoint(const std::string& folder);

struct Found {
  std::string folder;                 // "" when there is none
  Manifest manifest;
  std::vector<std::string> torn;      // newer ones that could not be used, and why
};
bool is_complete(const std::string& folder);       // its manifest is there; what it says is not looked at
bool has_checkpoints(const std::string& run);      // valid or torn, of either kind
Contents contents_of(const Manifest& manifest);
// The newest valid checkpoint of a run that holds all, or at least the weights.
Found newest_checkpoint(const std::string& run, Contents contents);
// What a user names: the folder of a checkpoint, or that of a run, whose newest valid one it is then. invalid_argument: neither.
Result<Found> checkpoint_at(const std::string& folder);
// Removes all but the newest `keep` checkpoints of each kind of a run up to that step, torn ones among them.
void prune_checkpoints(const std::string& run, long keep, long step);
// Removes what is not complete and that nobody writes any more.
void remove_torn_checkpoints(const std::string& run);

// All tensors of a checkpoint by name. Its files stay mapped while it lives.
class CheckpointTensors {
 public:
  // invalid_argument: a tensor is missing or has another shape.
  static Result<CheckpointTensors> open(const std::string& folder, const Manifest& manifest);
  // Fills what `layout` puts into a unit; `suffix` is "", ".first" or ".second".
  Status fill(const Layout& layout, std::size_t unit, const std::string& suffix, float* begin) const;

 private:
  std::vector<Safetensors> files_;
};

}  // namespace tutti::trainer
