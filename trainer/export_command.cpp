#include "trainer/export_command.h"

#include <fmt/format.h>

#include <filesystem>
#include <memory>

#include "trainer/checkpoint.h"
#include "trainer/failure.h"
#include "trainer/onnx.h"

namespace tutti::trainer {
namespace {

struct Flags {
  std::string from, onnx, safetensors;
};

// Under a file's own name, in its folder. Nothing is written over.
template <class Write>
void write(const std::string& path, Write write_in) {
  const std::filesystem::path file(path);
  if (std::filesystem::exists(file)) refuse(path + " is there already; give another name");
  const WrittenFile written = require(write_in(file.has_parent_path() ? file.parent_path().string() : std::string("."), file.filename().string()));
  fmt::print("{}: {:.1f} MB, sha256 {}\n", path, double(written.bytes) / 1e6, to_hex(written.digest));
}

int export_weights(const Flags& flags) {
  if (flags.onnx.empty() && flags.safetensors.empty()) refuse("nothing to write: give --onnx FILE, --safetensors FILE or both");
  const Found found = require(checkpoint_at(flags.from));
  const ModelConfig& config = found.manifest.model;
  const auto tensors = require(CheckpointTensors::open(found.folder, found.manifest));
  const Layout layout(config);
  WholeWeights<float> weights(layout);
  for (std::size_t unit = 0; unit < layout.units().size(); ++unit) require(tensors.fill(layout, unit, "", weights.at(unit)));
  fmt::print("{}, after step {}\n", found.folder, found.manifest.step);
  if (!flags.safetensors.empty()) {
    std::vector<NamedTensor> named;
    for (const Tensor& tensor : layout.tensors()) named.push_back({tensor.name, tensor.shape, weights.at(tensor.unit) + tensor.offset});
    write(flags.safetensors, [&](const std::string& folder, const std::string& name) { return write_safetensors(folder, name, named); });
  }
  if (!flags.onnx.empty()) {
    const std::string bytes = require(onnx_file(config, layout, weights));
    write(flags.onnx, [&](const std::string& folder, const std::string& name) { return write_text(folder, name, bytes); });
  }
  return 0;
}

}  // namespace

std::function<int()> add_export(CLI::App& app) {
  auto flags = std::make_shared<Flags>();
  app.add_option("from", flags->from, "a run's folder (its newest valid checkpoint), or a checkpoint's")->required();
  app.add_option("--onnx", flags->onnx, "file: tokens in, logits out, any batch and context; operator set 17");
  app.add_option("--safetensors", flags->safetensors, "file: all weights in one, f32, under Hugging Face's GPT-2 names");
  return [flags] { return export_weights(*flags); };
}

}  // namespace tutti::trainer
