#include "trainer/layout.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "trainer/random.h"

namespace tutti::trainer {
namespace {

float starting_weight(const Tensor& tensor, std::size_t index, std::uint64_t seed, std::size_t i) {
  if (tensor.deviation == 0) return float(tensor.start);
  return float(tensor.deviation * normal(mix(mix(seed, 0x77656967687473), index), i));
}

}  // namespace

std::size_t Tensor::count() const {
  std::size_t n = 1;
  for (const std::size_t side : shape) n *= side;
  return n;
}

void Layout::add(const std::string& name, std::vector<std::size_t> shape, bool decays, double deviation, double start) {
  tensors_.push_back({name, std::move(shape), filled_, units_.size(), decays, deviation, start});
  filled_ += tensors_.back().count();
}

void Layout::add_norm(const ModelConfig& config, const std::string& name) {
  add(name + ".weight", {config.width}, false, 0, 1);
  if (config.norm_bias()) add(name + ".bias", {config.width}, false, 0);
}

void Layout::add_linear(const ModelConfig& config, const std::string& name, std::size_t inputs, std::size_t outputs, double deviation) {
  add(name + ".weight", {inputs, outputs}, true, deviation);
  if (config.bias) add(name + ".bias", {outputs}, false, 0);
}

void Layout::end_unit() {
  const std::size_t begin = units_.empty() ? 0 : units_.back().offset + units_.back().count;
  units_.push_back({begin, (filled_ + kBlock - 1) / kBlock * kBlock});
  filled_ = 0;
}

Layout::Layout(const ModelConfig& c) {
  // GPT-2's start: 0.02, and smaller for what is added to the residual stream, by the number of additions.
  const double plain = 0.02, residual = 0.02 / std::sqrt(2.0 * double(c.layers));
  add("wte.weight", {c.vocabulary, c.width}, true, plain);
  if (c.position == PositionKind::learned) add("wpe.weight", {c.context, c.width}, true, plain);
  end_unit();
  for (std::size_t layer = 0; layer < c.layers; ++layer) {
    const std::string h = fmt::format("h.{}.", layer);
    add_norm(c, h + "ln_1");
    add_linear(c, h + "attn.c_attn", c.width, c.qkv_width(), plain);
    add_linear(c, h + "attn.c_proj", c.width, c.width, residual);
    add_norm(c, h + "ln_2");
    add_linear(c, h + "mlp.c_fc", c.width, c.hidden * inputs_of(c.activation), plain);
    add_linear(c, h + "mlp.c_proj", c.hidden, c.width, residual);
    if (layer + 1 == c.layers) add_norm(c, "ln_f");
    end_unit();
  }
}

std::size_t Layout::parameters() const {
  std::size_t n = 0;
  for (const Tensor& tensor : tensors_) n += tensor.count();
  return n;
}

template <class T>
EmbeddingTensors<T> embedding_tensors(const ModelConfig& c, T* begin) {
  return {begin, c.position == PositionKind::learned ? begin + c.vocabulary * c.width : nullptr};
}

template <class T>
BlockTensors<T> block_tensors(const ModelConfig& c, std::size_t layer, T* begin) {
  const auto take = [&](bool there, std::size_t count) {
    T* at = there ? begin : nullptr;
    begin += there ? count : 0;
    return at;
  };
  const std::size_t up = c.hidden * inputs_of(c.activation);
  BlockTensors<T> t;
  t.norm1 = take(true, c.width), t.norm1_bias = take(c.norm_bias(), c.width);
  t.qkv = take(true, c.width * c.qkv_width()), t.qkv_bias = take(c.bias, c.qkv_width());
  t.joint = take(true, c.width * c.width), t.joint_bias = take(c.bias, c.width);
  t.norm2 = take(true, c.width), t.norm2_bias = take(c.norm_bias(), c.width);
  t.up = take(true, c.width * up), t.up_bias = take(c.bias, up);
  t.down = take(true, c.hidden * c.width), t.down_bias = take(c.bias, c.width);
  if (layer + 1 == c.layers) t.last_norm = take(true, c.width), t.last_norm_bias = take(c.norm_bias(), c.width);
  return t;
}

void start_weights(const Layout& layout, std::uint64_t seed, std::size_t unit, float* begin) {
  std::fill_n(begin, layout.units()[unit].count, 0.0f);
  for (std::size_t index = 0; index < layout.tensors().size(); ++index) {
    const Tensor& tensor = layout.tensors()[index];
    if (tensor.unit != unit) continue;
    for (std::size_t i = 0; i < tensor.count(); ++i) begin[tensor.offset + i] = starting_weight(tensor, index, seed, i);
  }
}

#define TUTTI_FOR(T)                                                                      \
  template EmbeddingTensors<T> embedding_tensors(const ModelConfig&, T*);                 \
  template BlockTensors<T> block_tensors(const ModelConfig&, std::size_t, T*);
TUTTI_FOR(float)
TUTTI_FOR(double)
TUTTI_FOR(const float)
TUTTI_FOR(const double)
#undef TUTTI_FOR

}  // namespace tutti::trainer
