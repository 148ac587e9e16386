// The GPU's kernels, emulated, against the host's layers, which layers_test.cpp holds against differences: each where its shapes are awkward,
// then whole models with every option, the optimizer, and a run.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <algorithm>
#include <cmath>
#include "tests/trainer/emulated_backend.h"
#include "tests/trainer/models.h"
#include "trainer/failure.h"
#include "trainer/host_backend.h"
#include "trainer/text.h"
#include "trainer/training.h"

namespace tutti::trainer::test {
namespace {

using Floats = std::vector<float>;

Floats drawn(std::uint64_t key, std::size_t count) {
  Floats x(count);
  for (std::size_t i = 0; i < count; ++i) x[i] = float(normal(key, i));
  return x;
}

void expect_near(const std::string& what, const Floats& got, const Floats& wanted, double tolerance = 2e-5) {
  ASSERT_EQ(got.size(), wanted.size()) << what;
  for (std::size_t i = 0; i < got.size(); ++i) {
    ASSERT_NEAR(double(got[i]), double(wanted[i]), tolerance * (1 + std::abs(double(wanted[i])))) << what << "[" << i << "]";
  }
}

struct Kernels : testing::Test {
  Kernels() { keep_blas_on_one_thread(); }
  // `layer` on both backends: what it leaves in the arrays that it is given must be the same.
  template <class Layer>
  void compare(const std::string& what, const std::vector<Floats>& start, Layer layer, double tolerance = 2e-5) {
    std::vector<Floats> wanted = start, got = start;
    layer(static_cast<Backend<float>&>(host), wanted);
    layer(static_cast<Backend<float>&>(emulated), got);
    for (std::size_t i = 0; i < start.size(); ++i) expect_near(fmt::format("{}, array {}", what, i), got[i], wanted[i], tolerance);
    EXPECT_NE(wanted, start) << what << " did nothing";
  }
  Threads threads{2};
  HostBackend<float> host{threads};
  EmulatedBackend emulated;
};

TEST_F(Kernels, Linear) {
  constexpr std::size_t kRows = 9, kIn = 70, kOut = 45;
  for (const Precision precision : {Precision::f32, Precision::bf16, Precision::f16}) {
    for (int form = 0; form < 8; ++form) {
      compare(fmt::format("linear {}", form), {drawn(1, kRows * kIn), drawn(2, kIn * kOut), drawn(3, kOut), drawn(4, kRows * kOut), drawn(5, kRows * kOut),
                                               drawn(6, kRows * kIn), drawn(7, kIn * kOut), drawn(8, kOut)},
              [&](Backend<float>& b, std::vector<Floats>& x) {
                float* bias = form & 1 ? x[2].data() : nullptr;
                b.linear_forward(kRows, kIn, kOut, x[0].data(), x[1].data(), bias, x[4].data(), form & 2 ? x[3].data() : nullptr, precision);
                b.linear_backward(kRows, kIn, kOut, x[0].data(), x[1].data(), x[4].data(), x[5].data(), x[6].data(), bias ? x[7].data() : nullptr,
                                  form & 4 ? 1.0f : 0.0f, precision);
              }, 1e-4);
    }
  }
}

TEST_F(Kernels, Norms) {
  for (const NormKind kind : {NormKind::layer, NormKind::rms}) {
    for (const std::size_t width : {5, 32, 150}) {
      constexpr std::size_t kRows = 11;
      compare(fmt::format("norm of {}", width), {drawn(1, kRows * width), drawn(2, width), drawn(3, width), Floats(kRows * width), Floats(kRows), Floats(kRows),
                                                 drawn(4, kRows * width), drawn(5, kRows * width), drawn(6, width), drawn(7, width)},
              [&](Backend<float>& b, std::vector<Floats>& x) {
                const bool bias = kind == NormKind::layer;
                b.norm_forward(kind, kRows, width, x[0].data(), x[1].data(), bias ? x[2].data() : nullptr, x[3].data(), x[4].data(), x[5].data());
                b.norm_backward(kind, kRows, width, x[0].data(), x[1].data(), x[4].data(), x[5].data(), x[6].data(), x[7].data(), x[8].data(),
                                bias ? x[9].data() : nullptr, width == 32 ? 0.0f : 1.0f);
              });
    }
  }
}

TEST_F(Kernels, ActivationsRopeAndSums) {
  constexpr std::size_t kRows = 7, kWidth = 40;
  for (const ActivationKind kind : {ActivationKind::gelu, ActivationKind::swiglu}) {
    compare("activation", {drawn(1, kRows * kWidth * inputs_of(kind)), Floats(kRows * kWidth), drawn(2, kRows * kWidth), Floats(kRows * kWidth * inputs_of(kind))},
            [&](Backend<float>& b, std::vector<Floats>& x) {
              b.activation_forward(kind, kRows, kWidth, x[0].data(), x[1].data());
              b.activation_backward(kind, kRows, kWidth, x[0].data(), x[2].data(), x[3].data());
            });
  }
  for (const Turn turn : {Turn::forward, Turn::backward}) {
    compare("rope", {drawn(1, kRows * kWidth)}, [&](Backend<float>& b, std::vector<Floats>& x) { b.rope(turn, kRows, 4, 3, 8, x[0].data(), kWidth); });
  }
  compare("add", {drawn(1, 1000), drawn(2, 1000)}, [&](Backend<float>& b, std::vector<Floats>& x) { b.add(1000, x[0].data(), x[1].data()); }, 0);
}

TEST_F(Kernels, EmbeddingAddsUpTheRowsOfAToken) {
  constexpr std::size_t kBatch = 3, kContext = 50, kWidth = 70, kVocabulary = 9;      // more rows than a block has threads
  std::vector<Token> tokens;
  for (std::size_t i = 0; i < kBatch * kContext; ++i) tokens.push_back(Token(mix(3, i) % kVocabulary));
  for (const bool positions : {true, false}) {
    compare("embedding", {drawn(1, kVocabulary * kWidth), drawn(2, kContext * kWidth), Floats(tokens.size() * kWidth), drawn(4, tokens.size() * kWidth),
                          drawn(5, kVocabulary * kWidth), drawn(6, kContext * kWidth)},
            [&](Backend<float>& b, std::vector<Floats>& x) {
              b.embedding_forward(kBatch, kContext, kWidth, tokens.data(), x[0].data(), positions ? x[1].data() : nullptr, x[2].data());
              b.embedding_backward(kBatch, kContext, kWidth, tokens.data(), x[3].data(), x[4].data(), positions ? x[5].data() : nullptr, 1.0f);
            });
  }
}

TEST_F(Kernels, Loss) {
  constexpr std::size_t kRows = 5, kVocabulary = 301;
  const std::vector<Token> targets = {0, 300, 7, 128, 64};
  Floats logits = drawn(1, kRows * kVocabulary);
  for (float& x : logits) x *= 20;
  compare("loss", {logits, Floats(kRows), Floats(kRows)}, [&](Backend<float>& b, std::vector<Floats>& x) {
    b.loss_forward(kRows, kVocabulary, x[0].data(), targets.data(), x[1].data(), x[2].data());
    b.loss_backward(kRows, kVocabulary, targets.data(), x[2].data(), 0.7f, x[0].data());
  });
}

TEST_F(Kernels, DropoutDrawsTheSame) {
  compare("dropout", {Floats(4 * 333, 1.0f)}, [&](Backend<float>& b, std::vector<Floats>& x) { b.drop({0.3f, 17, 5}, 4, 333, x[0].data()); }, 0);
}

// Within a tile, at its edge, several; heads of both kinds of tile and of odd sizes; shared keys.
TEST_F(Kernels, Attention) {
  for (const AttentionShape& shape : {AttentionShape{2, 5, 2, 2, 4}, {1, 32, 2, 1, 64}, {1, 33, 4, 2, 7}, {1, 70, 1, 1, 16}, {1, 40, 2, 1, 96}}) {
    for (const float rate : {0.0f, 0.3f}) {
      const std::size_t rows = shape.batch * shape.context;
      compare(fmt::format("context {}, heads of {}", shape.context, shape.head_size),
              {drawn(1, rows * shape.qkv_width()), Floats(rows * shape.width()), Floats(rows * shape.heads), drawn(2, rows * shape.width()),
               Floats(rows * shape.qkv_width())},
              [&](Backend<float>& b, std::vector<Floats>& x) {
                b.attention_forward(shape, {rate, 23, 1}, x[0].data(), x[1].data(), x[2].data());
                b.attention_backward(shape, {rate, 23, 1}, x[0].data(), x[1].data(), x[2].data(), x[3].data(), x[4].data());
              });
    }
  }
  EXPECT_THROW(emulated.attention_forward({1, 2, 1, 1, 129}, {}, nullptr, nullptr, nullptr), Failure);
}

TEST_F(Kernels, AttentionInSixteenBits) {
  for (const Precision precision : {Precision::bf16, Precision::f16}) {
    const AttentionShape shape{1, 45, 2, 2, 16, precision};
    compare("attention", {drawn(1, 45 * shape.qkv_width()), Floats(45 * shape.width()), Floats(90), drawn(2, 45 * shape.width()), Floats(45 * shape.qkv_width())},
            [&](Backend<float>& b, std::vector<Floats>& x) {
              b.attention_forward(shape, {}, x[0].data(), x[1].data(), x[2].data());
              b.attention_backward(shape, {}, x[0].data(), x[1].data(), x[2].data(), x[3].data(), x[4].data());
            }, precision == Precision::bf16 ? 0.03 : 0.004);
  }
}

TEST_F(Kernels, SixteenBitsAreThoseOfTheHost) {
  const Floats x = drawn(1, 3000);
  for (const Precision precision : {Precision::bf16, Precision::f16}) {
    compare("rounding", {x}, [&](Backend<float>& b, std::vector<Floats>& y) { b.round(precision, y[0].size(), y[0].data()); }, 0);
    std::vector<std::uint16_t> wanted(x.size()), got(x.size());
    host.pack(precision, x.size(), x.data(), wanted.data());
    emulated.pack(precision, x.size(), x.data(), got.data());
    EXPECT_EQ(got, wanted);
    compare("widening", {Floats(x.size())}, [&](Backend<float>& b, std::vector<Floats>& y) { b.unpack(precision, x.size(), wanted.data(), y[0].data()); }, 0);
  }
}

TEST_F(Kernels, OptimizerIsTheHosts) {
  const Layout layout(small());
  const Shares shares(layout, 2, 1);
  const auto optimized = [&](Backend<float>& backend, Device* elsewhere) {
    Optimizer optimizer(layout, shares, AdamW{}, backend, elsewhere);
    Floats weights = drawn(1, layout.count());
    for (long step = 1; step <= 3; ++step) {
      const Floats gradient = drawn(std::uint64_t(step) + 1, layout.count());
      for (std::size_t unit = 0; unit < layout.units().size(); ++unit) {
        const std::size_t at = layout.units()[unit].offset + shares.mine(unit).begin;
        optimizer.step(unit, weights.data() + at, gradient.data() + at, 0.01, 0.5, step);
      }
    }
    return weights;
  };
  const Floats wanted = optimized(host, nullptr);
  expect_near("weights", optimized(emulated, nullptr), wanted, 1e-6);
  EXPECT_EQ(optimized(host, &emulated), wanted);      // its state on the host, weights and gradients elsewhere
  const Floats x = drawn(9, 4 * kBlock);
  std::vector<double> squares(4), host_squares(4);
  emulated.sum_squares(4, x.data(), squares.data());
  host.sum_squares(4, x.data(), host_squares.data());
  for (std::size_t i = 0; i < 4; ++i) EXPECT_NEAR(squares[i], host_squares[i], 1e-9 * host_squares[i]);
}

struct Gradient {
  double loss = 0;
  Floats numbers;
};
Gradient gradient_on(Backend<float>& backend, const Case& c, Precision precision = Precision::f32) {
  const Layout layout(c.config);
  WholeWeights<float> weights(layout);
  WholeGradients<float> gradients(layout);
  fill(layout, weights.data());
  Model<float> model(c.config, kShape, c.recompute, backend, precision);
  const Dropout dropout{c.dropout, 99, 4};
  Gradient result;
  result.loss = model.forward(weights, kTokens.data(), kTargets.data(), dropout);
  model.backward(weights, gradients, kTokens.data(), kTargets.data(), dropout, 3.0f);
  result.numbers = gradients.data();
  return result;
}

double largest(const Floats& x) {
  double most = 0;
  for (const float number : x) most = std::max(most, std::abs(double(number)));
  return most;
}

class KernelModels : public testing::TestWithParam<Case> {};

TEST_P(KernelModels, HaveTheGradientsOfTheHost) {
  keep_blas_on_one_thread();
  Threads threads(1);
  HostBackend<float> host(threads);
  EmulatedBackend emulated;
  const Gradient wanted = gradient_on(host, GetParam()), got = gradient_on(emulated, GetParam());
  EXPECT_NEAR(got.loss, wanted.loss, 2e-6);
  for (std::size_t i = 0; i < wanted.numbers.size(); ++i) ASSERT_NEAR(got.numbers[i], wanted.numbers[i], 3e-6 * largest(wanted.numbers)) << i;
}

INSTANTIATE_TEST_SUITE_P(All, KernelModels, testing::ValuesIn(cases()), [](const auto& trial) { return std::string(trial.param.name); });

TEST(KernelModelsTest, InSixteenBitsToo) {
  keep_blas_on_one_thread();
  Threads threads(1);
  HostBackend<float> host(threads);
  EmulatedBackend emulated;
  for (const Precision precision : {Precision::bf16, Precision::f16}) {
    const Case plain{"plain", small()};
    const Gradient wanted = gradient_on(host, plain, precision), got = gradient_on(emulated, plain, precision);
    const double unit = precision == Precision::bf16 ? 0.008 : 0.001;
    EXPECT_NEAR(got.loss, wanted.loss, unit);
    for (std::size_t i = 0; i < wanted.numbers.size(); ++i) ASSERT_NEAR(got.numbers[i], wanted.numbers[i], unit * largest(wanted.numbers)) << i;
  }
}

// What decides when which thread runs changes no bit; threads that do not wait for each other do.
TEST(KernelModelsTest, TheOrderOfThreadsChangesNoBit) {
  keep_blas_on_one_thread();
  const Case dropout{"dropout", small(), 0.2f};
  EmulatedBackend one(1), two(2), hasty(3, true);
  const Gradient wanted = gradient_on(one, dropout);
  EXPECT_EQ(gradient_on(two, dropout).numbers, wanted.numbers);
  EXPECT_NE(gradient_on(hasty, dropout).numbers, wanted.numbers);
  EXPECT_GT(one.launched(), 50u);
}

double last_loss(Backend<float>& backend, Threads& threads, bool offload, Precision precision) {
  Options options;
  options.model.layers = 2, options.model.heads = options.model.kv_heads = 2, options.model.width = 16, options.model.hidden = 32;
  options.model.context = 8, options.batch = 2, options.micro_batches = 2, options.offload = offload, options.precision = precision;
  options.schedule.steps = options.steps = 4, options.schedule.rate = 0.01;
  Communicator communicator = require(Communicator::create(0, 1, require(Communicator::make_unique_id())));
  Trace trace(false, 0);
  Training training(options, Tokens::of_text(generated_text(1 << 12)), communicator, backend, threads, trace);
  training.start();
  double loss = 0;
  for (long step = 0; step < options.steps; ++step) loss = training.step().loss;
  return loss;
}

TEST(KernelTrainingTest, LosesAsTheHostDoes) {
  keep_blas_on_one_thread();
  Threads threads(1);
  HostBackend<float> host(threads);
  EmulatedBackend emulated;
  const double wanted = last_loss(host, threads, false, Precision::f32);
  EXPECT_LT(wanted, 5.5);
  EXPECT_NEAR(last_loss(emulated, threads, false, Precision::f32), wanted, 1e-4);
  EXPECT_NEAR(last_loss(emulated, threads, true, Precision::f32), wanted, 1e-4);
  EXPECT_NEAR(last_loss(emulated, threads, false, Precision::bf16), wanted, 0.02);
}

}  // namespace
}  // namespace tutti::trainer::test
