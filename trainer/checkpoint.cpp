#include "trainer/checkpoint.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

namespace tutti::trainer {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

std::string prefix(Contents contents) { return contents == Contents::all ? "checkpoint-" : "weights-"; }

Status wrong(const std::string& path, const std::string& what) { return Status(Code::invalid_argument, fmt::format("{}: {}", path, what)); }

// As Hugging Face's GPT2Config names things; empty for other shapes.
std::string hugging_face_config(const ModelConfig& c) {
  const bool gpt2 = c.position == PositionKind::learned && c.norm == NormKind::layer && c.activation == ActivationKind::gelu && c.bias &&
                    c.kv_heads == c.heads;
  if (!gpt2) return "";
  return json{{"model_type", "gpt2"}, {"architectures", {"GPT2LMHeadModel"}}, {"n_layer", c.layers}, {"n_head", c.heads}, {"n_embd", c.width},
              {"n_inner", c.hidden}, {"n_positions", c.context}, {"n_ctx", c.context}, {"vocab_size", c.vocabulary},
              {"activation_function", "gelu_new"}, {"layer_norm_epsilon", kNormEpsilon}, {"tie_word_embeddings", true},
              {"torch_dtype", "float32"}}.dump(2);
}

json index_of(const Layout& layout, int ranks) {
  json map = json::object();
  std::size_t bytes = 0;
  for (const Tensor& tensor : layout.tensors()) {
    map[tensor.name] = model_file(unit_owner(tensor.unit, ranks), ranks);
    bytes += tensor.count() * sizeof(float);
  }
  return {{"metadata", {{"total_size", bytes}}}, {"weight_map", map}};
}

// Of one kind, newest first.
std::vector<fs::path> checkpoints(const std::string& run, Contents contents) {
  std::vector<fs::path> all;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(run, error)) {
    if (entry.path().filename().string().starts_with(prefix(contents))) all.push_back(entry.path());
  }
  std::sort(all.rbegin(), all.rend());
  return all;
}

// Of both kinds, newest first; of one step, the one that holds all.
std::vector<fs::path> checkpoints(const std::string& run) {
  std::vector<fs::path> all = checkpoints(run, Contents::all);
  const std::vector<fs::path> light = checkpoints(run, Contents::weights);
  all.insert(all.end(), light.begin(), light.end());
  const auto step = [](const fs::path& path) { return path.filename().string().substr(path.filename().string().find('-')); };
  std::stable_sort(all.begin(), all.end(), [&](const fs::path& a, const fs::path& b) { return step(a) > step(b); });
  return all;
}

// What an earlier checkpoint of the step left, by another number of ranks: loaders might take it for a part of this one.
void remove_others(const std::string& folder, const std::vector<WrittenFile>& files) {
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    const std::string name = entry.path().filename().string();
    const bool known = std::any_of(files.begin(), files.end(), [&](const WrittenFile& file) { return file.name == name; });
    if (!known) fs::remove_all(entry.path(), error);
  }
}

Result<Manifest> parse(const std::string& path) {
  std::ifstream file(path);
  if (!file) return wrong(path, "is missing: the checkpoint was not finished");
  const json j = json::parse(file, nullptr, false);
  Manifest m;
  try {
    m.step = j.at("step"), m.loss = j.at("loss"), m.settings = j.at("settings");
    m.loss_scale = j.value("loss_scale", 1.0), m.calm_steps = j.value("calm_steps", 0l);
    const auto model = model_config_from_json(j.at("model").dump());
    if (!model) return wrong(path, model.status().text());
    m.model = *model;
    for (const json& entry : j.at("files")) {
      WrittenFile written{entry.at("name"), entry.at("bytes"), {}};
      const std::string hex = entry.at("sha256");
      if (hex.size() != 2 * written.digest.size()) return wrong(path, "is damaged");
      for (std::size_t i = 0; i < written.digest.size(); ++i) written.digest[i] = std::uint8_t(std::stoi(hex.substr(2 * i, 2), nullptr, 16));
      m.files.push_back(written);
    }
  } catch (const std::exception& error) {
    return wrong(path, fmt::format("is damaged: {}", error.what()));
  }
  return m;
}

}  // namespace

std::string settings_text(const Options& o) {
  return fmt::format("--seed {} --batch {} --micro-batches {}{}{}", o.seed, o.batch, o.micro_batches, o.drop_last ? " --drop-last" : "",
                     o.data.empty() ? "" : " --data " + fs::path(o.data).filename().string()) +
         (o.tokenizer.empty() ? "" : " --tokenizer " + fs::path(o.tokenizer).filename().string());
}

std::string checkpoint_folder(const std::string& run, long step, Contents contents) { return fmt::format("{}/{}{:08}", run, prefix(contents), step); }
int unit_owner(std::size_t unit, int ranks) { return int(unit % std::size_t(ranks)); }
std::string model_file(int rank, int ranks) {
  return ranks == 1 ? "model.safetensors" : fmt::format("model-{:05}-of-{:05}.safetensors", rank + 1, ranks);
}
std::string optimizer_file(int rank, int ranks) { return fmt::format("optimizer-{:05}-of-{:05}.safetensors", rank + 1, ranks); }

Status complete_checkpoint(const std::string& folder, const Manifest& manifest, const Layout& layout, int ranks) {
  std::vector<WrittenFile> files = manifest.files;
  const auto add = [&](const std::string& name, const std::string& text) {
    const auto written = write_text(folder, name, text);
    if (written) files.push_back(*written);
    return written.status();
  };
  if (ranks > 1) {
    if (const Status status = add("model.safetensors.index.json", index_of(layout, ranks).dump(2)); !status) return status;
  }
  if (const std::string config = hugging_face_config(manifest.model); !config.empty()) {
    if (const Status status = add("config.json", config); !status) return status;
  }
  remove_others(folder, files);
  json list = json::array();
  for (const WrittenFile& file : files) list.push_back({{"name", file.name}, {"bytes", file.bytes}, {"sha256", to_hex(file.digest)}});
  const json j = {{"step", manifest.step}, {"loss", manifest.loss}, {"loss_scale", manifest.loss_scale},
                  {"calm_steps", manifest.calm_steps}, {"settings", manifest.settings},
                  {"model", json::parse(to_json(manifest.model))}, {"files", list}};
  return write_text(folder, "manifest.json", j.dump(2)).status();
}

Result<Manifest> read_checkpoint(const std::string& folder) {
  auto manifest = parse(folder + "/manifest.json");
  if (!manifest) return manifest;
  for (const WrittenFile& file : manifest->files) {
    const std::string path = folder + "/" + file.name;
    std::error_code error;
    const auto size = fs::file_size(path, error);
    if (error) return wrong(path, "is missing");
    if (size != file.bytes) return wrong(path, fmt::format("has {} bytes instead of {}", size, file.bytes));
    const auto digest = digest_of_file(path);
    if (!digest) return digest.status();
    if (*digest != file.digest) return wrong(path, "has another SHA-256 than the manifest says");
  }
  return manifest;
}

bool is_complete(const std::string& folder) {
  std::error_code error;
  return fs::exists(folder + "/manifest.json", error);
}

bool has_checkpoints(const std::string& run) { return !checkpoints(run).empty(); }

Contents contents_of(const Manifest& manifest) {
  const auto averages = [](const WrittenFile& file) { return file.name.starts_with("optimizer-"); };
  return std::any_of(manifest.files.begin(), manifest.files.end(), averages) ? Contents::all : Contents::weights;
}

Found newest_checkpoint(const std::string& run, Contents contents) {
  Found found;
  for (const fs::path& path : contents == Contents::all ? checkpoints(run, contents) : checkpoints(run)) {
    auto manifest = read_checkpoint(path.string());
    if (manifest) {
      found.folder = path.string();
      found.manifest = *manifest;
      return found;
    }
    found.torn.push_back(manifest.status().text());
  }
  return found;
}

Result<Found> checkpoint_at(const std::string& folder) {
  if (is_complete(folder)) {
    auto manifest = read_checkpoint(folder);
    if (!manifest) return manifest.status();
    return Found{folder, *manifest, {}};
  }
  Found found = newest_checkpoint(folder, Contents::weights);
  if (!found.folder.empty()) return found;
  std::error_code error;
  std::string why = fs::is_directory(folder, error) ? "holds no valid checkpoint: give the folder of a run or of a checkpoint" : "there is no such folder";
  for (const std::string& torn : found.torn) why += fmt::format("; {}", torn);
  return wrong(folder, why);
}

void prune_checkpoints(const std::string& run, long keep, long step) {
  std::error_code error;
  for (const Contents contents : {Contents::all, Contents::weights}) {
    auto all = checkpoints(run, contents);
    // Later steps are of a course that was left: made anew when they are reached.
    const fs::path now = fs::path(checkpoint_folder(run, step, contents)).filename();
    std::erase_if(all, [&](const fs::path& path) { return path.filename() > now; });
    for (std::size_t i = std::size_t(std::max(keep, 1l)); i < all.size(); ++i) fs::remove_all(all[i], error);
  }
}

void remove_torn_checkpoints(const std::string& run) {
  std::error_code error;
  for (const fs::path& path : checkpoints(run))
    if (!is_complete(path.string())) fs::remove_all(path, error);
}

Result<CheckpointTensors> CheckpointTensors::open(const std::string& folder, const Manifest& manifest) {
  CheckpointTensors tensors;
  for (const WrittenFile& file : manifest.files) {
    if (!file.name.ends_with(".safetensors")) continue;
    auto opened = Safetensors::open(folder + "/" + file.name);
    if (!opened) return opened.status();
    tensors.files_.push_back(std::move(*opened));
  }
  return tensors;
}

Status CheckpointTensors::fill(const Layout& layout, std::size_t unit, const std::string& suffix, float* begin) const {
  std::fill_n(begin, layout.units()[unit].count, 0.0f);
  for (const Tensor& tensor : layout.tensors()) {
    if (tensor.unit != unit) continue;
    const Safetensors::Entry* entry = nullptr;
    for (const Safetensors& file : files_) {
      const auto found = file.tensors().find(tensor.name + suffix);
      if (found != file.tensors().end()) entry = &found->second;
    }
    if (!entry) return wrong(tensor.name + suffix, "is not in the checkpoint");
    if (entry->shape != tensor.shape) return wrong(tensor.name + suffix, "has another shape in the checkpoint");
    std::memcpy(begin + tensor.offset, entry->data, entry->count * sizeof(float));
  }
  return {};
}

}  // namespace tutti::trainer
