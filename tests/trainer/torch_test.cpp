// The model, its gradients and ten steps of AdamW against the same in PyTorch (reference.py), in f32. Skipped where there is none.
#include <gtest/gtest.h>
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

// Debian's, where its packages are; else the first on the path.
std::string python() { return std::filesystem::exists("/usr/bin/python3") ? "/usr/bin/python3" : "python3"; }

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

INSTANTIATE_TEST_SUITE_P(All, Torch, testing::Values(Case{"gpt2", gpt2()}, Case{"llama", llama()}),
                         [](const auto& test) { return std::string(test.param.name); });

}  // namespace
}  // namespace tutti::trainer::test
