#include "trainer/model_config.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

namespace tutti::trainer {
namespace {

using nlohmann::json;

json fields(const ModelConfig& c) {
  return {{"layers", c.layers},
          {"heads", c.heads},
          {"kv_heads", c.kv_heads},
          {"width", c.width},
          {"hidden", c.hidden},
          {"vocabulary", c.vocabulary},
          {"context", c.context},
          {"position", c.position == PositionKind::rope ? "rope" : "learned"},
          {"norm", c.norm == NormKind::rms ? "rms" : "layer"},
          {"activation", c.activation == ActivationKind::swiglu ? "swiglu" : "gelu"},
          {"bias", c.bias}};
}

}  // namespace

double ModelConfig::flops_per_token() const {
  const auto w = double(width);
  const double block = w * double(qkv_width()) + w * w + w * double(hidden) * double(inputs_of(activation) + 1);
  const double attention = w * double(context);       // two products over half of the context
  return 6 * (double(layers) * (block + attention) + w * double(vocabulary));
}

std::optional<ModelConfig> preset(std::string_view name) {
  ModelConfig c;
  if (name == "tiny") return c;
  if (name == "10m") {
    c.layers = 6, c.heads = c.kv_heads = 6, c.width = 384, c.hidden = 1536, c.context = 256;
    return c;
  }
  if (name == "gpt2-124m") {
    c.layers = 12, c.heads = c.kv_heads = 12, c.width = 768, c.hidden = 3072, c.vocabulary = 50257, c.context = 1024;
    return c;
  }
  return std::nullopt;
}

std::vector<std::string> preset_names() { return {"tiny", "10m", "gpt2-124m"}; }

Status check(const ModelConfig& c) {
  const auto wrong = [](std::string text) { return Status(Code::invalid_argument, std::move(text)); };
  for (const auto& [name, value] : {std::pair{"layers", c.layers}, {"heads", c.heads}, {"kv-heads", c.kv_heads}, {"width", c.width},
                                    {"hidden", c.hidden}, {"vocabulary", c.vocabulary}, {"context", c.context}}) {
    if (value == 0 || value > 1u << 24) return wrong(fmt::format("{} is {}; 1 to {} is possible", name, value, 1 << 24));
  }
  if (c.width % c.heads) return wrong(fmt::format("width {} cannot be shared by {} heads: it must be a multiple", c.width, c.heads));
  if (c.heads % c.kv_heads) return wrong(fmt::format("{} heads cannot share {} key-value heads: it must be a multiple", c.heads, c.kv_heads));
  if (c.position == PositionKind::rope && c.head_size() % 2) {
    return wrong(fmt::format("rope needs heads of even size; width {} / {} heads is {}", c.width, c.heads, c.head_size()));
  }
  return {};
}

std::string to_json(const ModelConfig& config) { return fields(config).dump(); }

Result<ModelConfig> model_config_from_json(const std::string& text) {
  const json j = json::parse(text, nullptr, false);
  ModelConfig c;
  const json known = fields(c);
  try {
    for (const auto& [name, value] : known.items()) {
      if (!j.contains(name)) return Status(Code::invalid_argument, fmt::format("the model's \"{}\" is missing", name));
    }
    c.layers = j.at("layers"), c.heads = j.at("heads"), c.kv_heads = j.at("kv_heads"), c.width = j.at("width"), c.hidden = j.at("hidden");
    c.vocabulary = j.at("vocabulary"), c.context = j.at("context"), c.bias = j.at("bias");
    c.position = j.at("position") == "rope" ? PositionKind::rope : PositionKind::learned;
    c.norm = j.at("norm") == "rms" ? NormKind::rms : NormKind::layer;
    c.activation = j.at("activation") == "swiglu" ? ActivationKind::swiglu : ActivationKind::gelu;
  } catch (const json::exception& error) {
    return Status(Code::invalid_argument, fmt::format("the model's description is damaged: {}", error.what()));
  }
  if (fields(c) != j) return Status(Code::invalid_argument, "the model's description has values that are not known here: " + text);
  if (const Status status = check(c); !status) return status;
  return c;
}

std::string difference(const ModelConfig& wanted, const ModelConfig& found) {
  const json w = fields(wanted), f = fields(found);
  std::string text;
  for (const auto& [name, value] : w.items()) {
    if (value != f[name]) text += fmt::format("{}{} {} instead of {}", text.empty() ? "" : ", ", name, f[name].dump(), value.dump());
  }
  return text;
}

}  // namespace tutti::trainer
