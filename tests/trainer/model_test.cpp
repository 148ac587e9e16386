// The whole model against central differences in float64, for each option; f32 against f64; threads and recomputing change no bit.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include "tests/trainer/differences.h"
#include "tests/trainer/models.h"
#include "trainer/host_backend.h"

namespace tutti::trainer::test {
namespace {

template <class T>
struct Trial {
  explicit Trial(const Case& c, int threads_wanted = 1)
      : layout(c.config), threads(threads_wanted), backend(threads), model(c.config, kShape, c.recompute, backend), weights(layout), gradients(layout),
        dropout{c.dropout, 99, 4} {
    keep_blas_on_one_thread();
    fill(layout, weights.data());
  }
  double forward() { return model.forward(weights, kTokens.data(), kTargets.data(), dropout); }
  void backward(T scale) { model.backward(weights, gradients, kTokens.data(), kTargets.data(), dropout, scale); }
  Layout layout;
  Threads threads;
  HostBackend<T> backend;
  Model<T> model;
  WholeWeights<T> weights;
  WholeGradients<T> gradients;
  Dropout dropout;
};

class Models : public testing::TestWithParam<Case> {};

TEST_P(Models, GradientsAreThoseOfDifferences) {
  Trial<double> run(GetParam());
  run.forward();
  run.backward(3.0);
  for (const Tensor& tensor : run.layout.tensors()) {
    const auto begin = std::ptrdiff_t(run.layout.units()[tensor.unit].offset + tensor.offset), end = begin + std::ptrdiff_t(tensor.count());
    std::vector<double>& all = run.weights.data();
    std::vector<double> x(all.begin() + begin, all.begin() + end);
    const auto& g = run.gradients.data();
    expect_gradient(tensor.name, x, std::vector<double>(g.begin() + begin, g.begin() + end), [&] {
      std::copy(x.begin(), x.end(), all.begin() + begin);
      return 3 * run.forward();
    });
    std::copy(x.begin(), x.end(), all.begin() + begin);
  }
}

TEST_P(Models, GradientsOfMicroBatchesAdd) {
  Trial<double> run(GetParam());
  run.forward();
  run.backward(1.0);
  const std::vector<double> once = run.gradients.data();
  run.forward();
  run.backward(2.0);
  for (std::size_t i = 0; i < once.size(); ++i) ASSERT_NEAR(run.gradients.data()[i], 3 * once[i], 1e-12 * (1 + std::abs(once[i])));
  run.gradients.restart();
  run.forward();
  run.backward(1.0);
  EXPECT_EQ(run.gradients.data(), once);
}

TEST_P(Models, SingleAgreesWithDouble) {
  Trial<double> wide(GetParam());
  Trial<float> run(GetParam());
  EXPECT_NEAR(run.forward(), wide.forward(), 1e-6);
  run.backward(1.0f);
  wide.backward(1.0);
  double largest = 0;
  for (const double g : wide.gradients.data()) largest = std::max(largest, std::abs(g));
  for (std::size_t i = 0; i < run.gradients.data().size(); ++i) {
    ASSERT_NEAR(double(run.gradients.data()[i]), wide.gradients.data()[i], 2e-6 * largest) << i;
  }
}

TEST_P(Models, ThreadsChangeNoBit) {
  Trial<float> one(GetParam(), 1), three(GetParam(), 3);
  EXPECT_EQ(one.forward(), three.forward());
  one.backward(1.0f);
  three.backward(1.0f);
  EXPECT_EQ(one.gradients.data(), three.gradients.data());
}

INSTANTIATE_TEST_SUITE_P(All, Models, testing::ValuesIn(cases()), [](const auto& trial) { return std::string(trial.param.name); });

TEST(ModelTest, RecomputingChangesNoBit) {
  Case plain{"plain", small(), 0.3f, false}, again{"again", small(), 0.3f, true};
  Trial<float> a(plain), b(again);
  EXPECT_EQ(a.forward(), b.forward());
  a.backward(1.0f);
  b.backward(1.0f);
  EXPECT_EQ(a.gradients.data(), b.gradients.data());
  EXPECT_LT(b.model.activation_bytes(), a.model.activation_bytes());
}

TEST(LayoutTest, Gpt2HasItsParametersAndNames) {
  const ModelConfig config = *preset("gpt2-124m");
  const Layout layout(config);
  EXPECT_EQ(layout.parameters(), 124439808u);       // as published
  EXPECT_EQ(layout.tensors().size(), 148u);
  EXPECT_EQ(layout.tensors()[0].name, "wte.weight");
  EXPECT_EQ(layout.tensors()[4].name, "h.0.attn.c_attn.weight");
  EXPECT_EQ(layout.tensors()[4].shape, (std::vector<std::size_t>{768, 2304}));
  EXPECT_EQ(layout.tensors().back().name, "ln_f.bias");
}

TEST(LayoutTest, TensorsOfABlockLieWhereTheLayoutSays) {
  for (const Case& c : cases()) {
    const Layout layout(c.config);
    std::vector<float> unit(layout.units().back().count);
    const auto t = block_tensors(c.config, c.config.layers - 1, unit.data());
    std::vector<float*> there;
    for (float* at : {t.norm1, t.norm1_bias, t.qkv, t.qkv_bias, t.joint, t.joint_bias, t.norm2, t.norm2_bias, t.up, t.up_bias, t.down,
                      t.down_bias, t.last_norm, t.last_norm_bias}) {
      if (at) there.push_back(at);
    }
    std::vector<float*> wanted;
    for (const Tensor& tensor : layout.tensors()) {
      if (tensor.unit == c.config.layers) wanted.push_back(unit.data() + tensor.offset);
    }
    EXPECT_EQ(there, wanted) << c.name;
  }
}

TEST(ModelConfigTest, JsonGoesThereAndBack) {
  for (const Case& c : cases()) EXPECT_EQ(*model_config_from_json(to_json(c.config)), c.config) << c.name;
  EXPECT_FALSE(model_config_from_json("{}").ok());
  EXPECT_FALSE(model_config_from_json("torn{").ok());
  std::string strange = to_json(small());
  strange.replace(strange.find("learned"), 7, "unknown");
  EXPECT_FALSE(model_config_from_json(strange).ok());
}

TEST(ModelConfigTest, SizesThatDoNotFitAreNamed) {
  ModelConfig c = small();
  c.heads = 3;
  EXPECT_NE(check(c).text().find("3 heads"), std::string::npos);
  c = small();
  c.heads = 4, c.kv_heads = 3;
  EXPECT_NE(check(c).text().find("3 key-value heads"), std::string::npos);
  c = small();
  c.heads = c.kv_heads = 8, c.position = PositionKind::rope;
  EXPECT_FALSE(check(c).ok());
  EXPECT_TRUE(check(small()).ok());
}

}  // namespace
}  // namespace tutti::trainer::test
