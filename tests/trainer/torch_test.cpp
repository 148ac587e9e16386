// The model, its gradients and ten steps of AdamW against the same in PyTorch (reference.py), in f32. Skipped where there is none.
#include <gtest/gtest.h>
#include <map>
#include <nlohmann/json.hpp>
#include "tests/trainer/command.h"
#include "trainer/checkpoint.h"
#include "trainer/gemm.h"
#include "trainer/host_backend.h"
#include "trainer/model.h"
#include "trainer/random.h"

namespace tutti::trainer::test {
namespace {

constexpr BatchShape kShape{3, 20};

ModelConfig gpt2() {
  ModelConfig c;
  c.layers = 3, c.heads = c.kv_heads = 4, c.width = 64, c.hidden = 256, c.vocabulary = 211, c.context = 20;
  return c;
}
ModelConfig llama() {
  ModelConfig c = gpt2();
  c.kv_heads = 2, c.position = PositionKind::rope, c.norm = NormKind::rms, c.activation = ActivationKind::swiglu, c.bias = false;
  return c;
}

struct Case {
  const char* name;
  ModelConfig config;
};
class Torch : public testing::TestWithParam<Case> {};

struct Batch {
  std::vector<Token> tokens, targets;
};
Batch batch(const ModelConfig& config) {
  Batch b;
  for (std::size_t i = 0; i < kShape.rows(); ++i) {
    b.tokens.push_back(Token(mix(1, i) % config.vocabulary));
    b.targets.push_back(Token(mix(2, i) % config.vocabulary));
  }
  return b;
}

// Larger than training starts with, and biases too, so that each part counts.
void fill(const Layout& layout, WholeWeights<float>& weights) {
  for (const Tensor& tensor : layout.tensors()) {
    for (std::size_t i = 0; i < tensor.count(); ++i) weights.at(tensor.unit)[tensor.offset + i] = float(0.1 * normal(tensor.offset, i) + tensor.start);
  }
}

void hand_over(const std::string& folder, const ModelConfig& config, const Layout& layout, WholeWeights<float>& weights, const Batch& b) {
  std::vector<NamedTensor> tensors;
  for (const Tensor& tensor : layout.tensors()) tensors.push_back({tensor.name, tensor.shape, weights.at(tensor.unit) + tensor.offset});
  std::filesystem::create_directories(folder);
  ASSERT_TRUE(write_safetensors(folder, "weights.safetensors", tensors).ok());
  write_file(folder + "/config.json", to_json(config));
  write_file(folder + "/tokens.json", nlohmann::json{{"samples", kShape.samples}, {"tokens", b.tokens}, {"targets", b.targets}}.dump());
}

TEST_P(Torch, AgreesInLogitsGradientsAndTenSteps) {
  if (shell(python() + " -c 'import torch'").status != 0) GTEST_SKIP() << "no PyTorch for " << python() << " (Debian: python3-torch)";
  const ModelConfig config = GetParam().config;
  const Layout layout(config);
  const Batch b = batch(config);
  WholeWeights<float> weights(layout);
  fill(layout, weights);
  const Folder folder;
  hand_over(folder / "x", config, layout, weights, b);
  const Outcome outcome = shell(fmt::format("{} {}/tests/trainer/reference.py {}", python(), TUTTI_SOURCE_DIR, folder / "x"));
  ASSERT_EQ(outcome.status, 0) << outcome.text;
  const Safetensors wanted = *Safetensors::open(folder / "x/result.safetensors");

  keep_blas_on_one_thread();
  Threads threads(2);
  HostBackend<float> backend(threads);
  Model<float> model(config, kShape, false, backend);
  WholeGradients<float> gradients(layout);
  const Shares shares(layout, 1, 0);
  Optimizer optimizer(layout, shares, AdamW{}, backend);
  for (long step = 0; step < 10; ++step) {
    EXPECT_NEAR(model.forward(weights, b.tokens.data(), b.targets.data(), {}), double(wanted.tensors().at("losses").data[step]), 1e-5) << step;
    if (step == 0) {
      const auto& logits = wanted.tensors().at("logits");
      for (std::size_t i = 0; i < logits.count; ++i) ASSERT_NEAR(model.logits()[i], logits.data[i], 1e-5 * (1 + std::abs(logits.data[i])));
    }
    gradients.restart();
    model.backward(weights, gradients, b.tokens.data(), b.targets.data(), {}, 1.0f);
    for (const Tensor& tensor : layout.tensors()) {
      if (step > 0) break;
      const auto& g = wanted.tensors().at("gradient " + tensor.name);
      const float* mine = gradients.data().data() + layout.units()[tensor.unit].offset + tensor.offset;
      double off = 0, size = 0;
      for (std::size_t i = 0; i < g.count; ++i) off += std::pow(double(mine[i]) - double(g.data[i]), 2), size += std::pow(double(g.data[i]), 2);
      EXPECT_GT(size, 0) << tensor.name;
      EXPECT_LE(std::sqrt(off), 1e-4 * std::sqrt(size)) << tensor.name;
    }
    for (std::size_t unit = 0; unit < layout.units().size(); ++unit) {
      optimizer.step(unit, weights.at(unit), gradients.data().data() + layout.units()[unit].offset, 1e-3, 1, step + 1);
    }
  }
}

// The published model.safetensors of GPT-2 (124M): 148 tensors of weights under these names, with these shapes, 124,439,808 numbers in all.
TEST(HuggingFaceTest, NamesAndShapesAreThePublishedOnes) {
  std::map<std::string, std::vector<std::size_t>> wanted = {
      {"wte.weight", {50257, 768}}, {"wpe.weight", {1024, 768}}, {"ln_f.weight", {768}}, {"ln_f.bias", {768}}}, found;
  for (int layer = 0; layer < 12; ++layer) {
    const std::vector<std::pair<std::string, std::vector<std::size_t>>> of_block = {
        {"ln_1.weight", {768}}, {"ln_1.bias", {768}}, {"ln_2.weight", {768}}, {"ln_2.bias", {768}},
        {"attn.c_attn.weight", {768, 2304}}, {"attn.c_attn.bias", {2304}}, {"attn.c_proj.weight", {768, 768}}, {"attn.c_proj.bias", {768}},
        {"mlp.c_fc.weight", {768, 3072}}, {"mlp.c_fc.bias", {3072}}, {"mlp.c_proj.weight", {3072, 768}}, {"mlp.c_proj.bias", {768}}};
    for (const auto& [name, shape] : of_block) wanted[fmt::format("h.{}.{}", layer, name)] = shape;
  }
  const Layout layout(*preset("gpt2-124m"));
  for (const Tensor& tensor : layout.tensors()) found[tensor.name] = tensor.shape;
  EXPECT_EQ(found, wanted);
  EXPECT_EQ(found.size(), 148u);
  EXPECT_EQ(layout.parameters(), 124439808u);
}

// A run's checkpoint, of one rank (one file) and of three (parts and an index), read by those names.
TEST(HuggingFaceTest, AGpt2MadeOfACheckpointHasItsLogits) {
  if (shell(python() + " -c 'import torch'").status != 0) GTEST_SKIP() << "no PyTorch for " << python() << " (Debian: python3-torch)";
  keep_blas_on_one_thread();
  Threads threads(1);
  HostBackend<float> backend(threads);
  for (const int ranks : {1, 3}) {
    const Folder folder;
    const Outcome trained = train_on(ranks, "shm", kSmall + "--vocabulary 300 --hidden 80 --steps 30 --rate 0.02 --run " + (folder / "run"));
    ASSERT_EQ(trained.status, 0) << trained.text;
    const std::string at = folder / "run/checkpoint-00000030";
    const Manifest manifest = *read_checkpoint(at);
    const Layout layout(manifest.model);
    WholeWeights<float> weights(layout);
    const auto tensors = CheckpointTensors::open(at, manifest);
    ASSERT_TRUE(tensors.ok()) << tensors.status().to_string();
    for (std::size_t unit = 0; unit < layout.units().size(); ++unit) ASSERT_TRUE(tensors->fill(layout, unit, "", weights.at(unit)));
    const BatchShape shape{3, 13};
    std::vector<Token> tokens;
    for (std::size_t i = 0; i < shape.rows(); ++i) tokens.push_back(Token(mix(1, i) % manifest.model.vocabulary));
    write_file(at + "/tokens.json", nlohmann::json{{"samples", shape.samples}, {"tokens", tokens}}.dump());
    const Outcome outcome = shell(fmt::format("{} {}/tests/trainer/hugging_face.py {}", python(), TUTTI_SOURCE_DIR, at));
    ASSERT_EQ(outcome.status, 0) << outcome.text;
    const auto wanted = *Safetensors::open(at + "/logits.safetensors");
    const auto& logits = wanted.tensors().at("logits");
    Model<float> model(manifest.model, shape, false, backend);
    model.forward_logits(weights, tokens.data(), {});
    ASSERT_EQ(logits.count, model.logits().size());
    float largest = 0;
    for (std::size_t i = 0; i < logits.count; ++i) {
      ASSERT_NEAR(model.logits()[i], logits.data[i], 1e-5 * (1 + std::abs(logits.data[i]))) << i;
      largest = std::max(largest, std::abs(logits.data[i]));
    }
    EXPECT_GT(largest, 0.5);
  }
}

INSTANTIATE_TEST_SUITE_P(All, Torch, testing::Values(Case{"gpt2", gpt2()}, Case{"llama", llama()}),
                         [](const auto& test) { return std::string(test.param.name); });

}  // namespace
}  // namespace tutti::trainer::test
