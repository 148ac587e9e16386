// `train export`: safetensors with the checkpoint's bits, and ONNX whose logits another runtime finds again.
#include <gtest/gtest.h>
#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>
#include "tests/trainer/command.h"
#include "trainer/checkpoint.h"
#include "trainer/gemm.h"
#include "trainer/host_backend.h"
#include "trainer/model.h"
#include "trainer/onnx.h"
#include "trainer/random.h"

namespace tutti::trainer::test {
namespace {

TEST(ExportTest, SafetensorsHaveTheCheckpointsBits) {
  const Folder folder;
  const Outcome trained = train_on(3, "shm", kSmall + "--steps 2 --run " + (folder / "run"));
  ASSERT_EQ(trained.status, 0) << trained.text;
  const std::string line = fmt::format("{} export {} --safetensors {}", train_program(), folder / "run", folder / "all.safetensors");
  const Outcome outcome = shell(line);
  ASSERT_EQ(outcome.status, 0) << outcome.text;
  const auto all = Safetensors::open(folder / "all.safetensors");
  ASSERT_TRUE(all.ok()) << all.status().to_string();
  std::size_t seen = 0;
  for (int rank = 0; rank < 3; ++rank) {
    const auto part = Safetensors::open(folder / ("run/checkpoint-00000002/" + model_file(rank, 3)));
    ASSERT_TRUE(part.ok()) << part.status().to_string();
    for (const auto& [name, entry] : part->tensors()) {
      const auto& found = all->tensors().at(name);
      EXPECT_EQ(found.shape, entry.shape);
      EXPECT_EQ(std::memcmp(found.data, entry.data, entry.count * sizeof(float)), 0) << name;
      ++seen;
    }
  }
  EXPECT_EQ(seen, all->tensors().size());
  EXPECT_GT(seen, 20u);

  const std::string before = read_text(folder / "all.safetensors");
  const Outcome again = shell(line);
  EXPECT_TRUE(again.status != 0 && again.says("is there already")) << again.text;
  EXPECT_EQ(read_text(folder / "all.safetensors"), before);
  EXPECT_NE(shell(fmt::format("{} export {}", train_program(), folder / "run")).status, 0);
  EXPECT_NE(shell(fmt::format("{} export {} --onnx x", train_program(), folder / "none")).status, 0);
}

struct Case {
  const char* name;
  ModelConfig config;
};
class Onnx : public testing::TestWithParam<Case> {};

TEST_P(Onnx, AnotherRuntimeFindsTheSameLogits) {
  std::string why;
  const std::string modules = folder_with_npm("onnxruntime-node", why);
  if (modules.empty()) GTEST_SKIP() << why;
  const ModelConfig config = GetParam().config;
  const Layout layout(config);
  WholeWeights<float> weights(layout);
  for (const Tensor& tensor : layout.tensors()) {
    for (std::size_t i = 0; i < tensor.count(); ++i) weights.at(tensor.unit)[tensor.offset + i] = float(0.1 * normal(tensor.offset, i) + tensor.start);
  }
  const Folder folder;
  const auto file = onnx_file(config, layout, weights);
  ASSERT_TRUE(file.ok()) << file.status().to_string();
  write_file(folder / "model.onnx", *file);
  keep_blas_on_one_thread();
  Threads threads(1);
  for (const BatchShape shape : {BatchShape{3, config.context}, {1, 7}, {2, 1}}) {
    std::vector<Token> tokens;
    for (std::size_t i = 0; i < shape.rows(); ++i) tokens.push_back(Token(mix(1, i) % config.vocabulary));
    write_file(folder / "tokens.json", nlohmann::json{{"samples", shape.samples}, {"tokens", tokens}}.dump());
    const Outcome outcome = shell(fmt::format("node {}/tests/trainer/onnx_run.cjs {} {}", TUTTI_SOURCE_DIR, modules, folder / ""));
    ASSERT_EQ(outcome.status, 0) << outcome.text;
    EXPECT_TRUE(outcome.says(fmt::format("logits {}x{}x{}", shape.samples, shape.context, config.vocabulary))) << outcome.text;
    const std::string bytes = read_text(folder / "logits");
    HostBackend<float> backend(threads);
    Model<float> model(config, shape, false, backend);
    model.forward_logits(weights, tokens.data(), {});
    ASSERT_EQ(bytes.size(), model.logits().size_bytes());
    double largest = 0;
    for (std::size_t i = 0; i < model.logits().size(); ++i) {
      float theirs = 0;
      std::memcpy(&theirs, bytes.data() + i * sizeof(float), sizeof(float));
      ASSERT_NEAR(theirs, model.logits()[i], 1e-4 * (1 + std::abs(model.logits()[i]))) << i;
      largest = std::max(largest, double(std::abs(theirs)));
    }
    EXPECT_GT(largest, 0.5);
  }
}

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
ModelConfig plain() {      // LayerNorm without biases
  ModelConfig c = gpt2();
  c.bias = false;
  return c;
}
INSTANTIATE_TEST_SUITE_P(All, Onnx, testing::Values(Case{"gpt2", gpt2()}, Case{"llama", llama()}, Case{"plain", plain()}),
                         [](const auto& test) { return std::string(test.param.name); });

}  // namespace
}  // namespace tutti::trainer::test
