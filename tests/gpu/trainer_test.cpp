// The trainer on a GPU: every layer and small whole models against the host, losses of a run of the tiny model against the host's,
// and ranks that share the GPU.
#include <gtest/gtest.h>
#include <tests/gpu/gpu.h>

#include <cmath>
#include <thread>

#include "tests/trainer/models.h"
#include "trainer/cuda/cuda_backend.h"
#include "trainer/failure.h"
#include "trainer/host_backend.h"
#include "trainer/text.h"
#include "trainer/training.h"

namespace tutti::gpu {
namespace {

using namespace trainer;

struct OnGpu : testing::Test {
  void SetUp() override {
    std::string why;
    if (!device(&why)) GTEST_SKIP() << why;
    keep_blas_on_one_thread();
  }
};

// The gradients of a model of three blocks, 2 samples of 70 tokens, on the host.
std::vector<float> gradient_on(Backend<float>& backend, const ModelConfig& config, Precision precision, double& loss) {
  const Layout layout(config);
  Threads threads(1);
  Communicator alone = require(Communicator::create(0, 1, require(Communicator::make_unique_id())));
  Trace trace(false, 0);
  Wire wire(alone, trace, backend);
  const Shares shares(layout, 1, 0);
  ResidentWeights weights(layout, shares, wire, backend);
  WholeWeights<float> start(layout);
  trainer::test::fill(layout, start.data());
  for (std::size_t unit = 0; unit < layout.units().size(); ++unit) weights.set(unit, start.at(unit));
  struct Gradients : GradientSink<float> {
    Gradients(Backend<float>& on, const Layout& of) : layout(of), data(on, of.count()) {}
    GradientPlace<float> gradient(std::size_t unit) override { return {data.data() + layout.units()[unit].offset, true}; }
    void finished(std::size_t) override {}
    const Layout& layout;
    Array<float> data;
  } gradients(backend, layout);
  const BatchShape shape{2, config.context};
  std::vector<Token> tokens, targets;
  for (std::size_t i = 0; i < shape.rows(); ++i) tokens.push_back(Token(mix(1, i) % config.vocabulary)), targets.push_back(Token(mix(2, i) % config.vocabulary));
  Array<Token> in(backend, tokens.size()), out(backend, tokens.size());
  backend.upload(in.data(), tokens.data(), in.bytes());
  backend.upload(out.data(), targets.data(), out.bytes());
  Model<float> model(config, shape, false, backend, precision);
  loss = model.forward(weights, in.data(), out.data(), {0.1f, 7, 2});
  model.backward(weights, gradients, in.data(), out.data(), {0.1f, 7, 2}, 3.0f);
  std::vector<float> host(layout.count());
  backend.download(host.data(), gradients.data.data(), gradients.data.bytes());
  return host;
}

TEST_F(OnGpu, GradientsAreThoseOfTheHost) {
  Threads threads(4);
  HostBackend<float> host(threads);
  const auto gpu = open_gpu(0);
  for (const bool llama : {false, true}) {
    for (const std::size_t head : {std::size_t(64), std::size_t(96)}) {
      for (const Precision precision : {Precision::f32, Precision::bf16, Precision::f16}) {
        ModelConfig c;
        c.layers = 3, c.heads = c.kv_heads = 4, c.width = 4 * head, c.hidden = 400, c.vocabulary = 301, c.context = 70;
        if (llama) c.kv_heads = 2, c.position = PositionKind::rope, c.norm = NormKind::rms, c.activation = ActivationKind::swiglu, c.bias = false;
        double wanted_loss = 0, loss = 0;
        const auto wanted = gradient_on(host, c, precision, wanted_loss), got = gradient_on(*gpu, c, precision, loss);
        const double unit = precision == Precision::f32 ? 1e-5 : precision == Precision::bf16 ? 0.02 : 0.003;
        EXPECT_NEAR(loss, wanted_loss, unit * wanted_loss);
        double off = 0, size = 0;
        for (std::size_t i = 0; i < wanted.size(); ++i) off += std::pow(double(got[i]) - double(wanted[i]), 2), size += std::pow(double(wanted[i]), 2);
        EXPECT_LT(std::sqrt(off / size), 10 * unit) << name_of(precision) << (llama ? ", Llama's kind" : ", GPT-2's kind") << ", heads of " << head;
        EXPECT_EQ(gradient_on(*gpu, c, precision, loss), got) << "another run has other bits";
      }
    }
  }
}

trainer::Options tiny() {
  trainer::Options o;
  o.model = *preset("tiny");
  o.schedule.steps = o.steps = 12;
  o.schedule.rate = 0.003;
  o.bucket_bytes = 1 << 18;
  return o;
}

std::vector<double> losses(const trainer::Options& options, Communicator& communicator, Backend<float>& backend, Threads& threads) {
  Trace trace(false, communicator.rank());
  Training training(options, Tokens::of_text(generated_text(1 << 16)), communicator, backend, threads, trace);
  training.start();
  std::vector<double> all;
  for (long step = 0; step < options.steps; ++step) all.push_back(training.step().loss);
  training.compare_ranks();
  require(communicator.barrier().wait());
  return all;
}

std::vector<double> losses_alone(const trainer::Options& options, Backend<float>& backend) {
  Threads threads(4);
  Communicator alone = require(Communicator::create(0, 1, require(Communicator::make_unique_id())));
  return losses(options, alone, backend, threads);
}

void expect_near(const std::vector<double>& got, const std::vector<double>& wanted, double tolerance, const std::string& what) {
  ASSERT_EQ(got.size(), wanted.size());
  for (std::size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], wanted[i], tolerance) << what << ", step " << i + 1;
}

TEST_F(OnGpu, TheTinyModelLosesAsOnTheHost) {
  Threads threads(4);
  HostBackend<float> host(threads);
  const auto gpu = open_gpu(0);
  const auto wanted = losses_alone(tiny(), host);
  EXPECT_LT(wanted.back(), wanted.front() - 0.5);
  for (const Precision precision : {Precision::f32, Precision::bf16, Precision::f16}) {
    for (const bool offload : {false, true}) {
      trainer::Options o = tiny();
      o.precision = precision, o.offload = offload;
      expect_near(losses_alone(o, *gpu), wanted, precision == Precision::f32 ? 2e-3 : 0.05, std::string(name_of(precision)));
    }
  }
}

TEST_F(OnGpu, RanksThatShareItLoseAsOneDoes) {
  Threads host_threads(4);
  HostBackend<float> host(host_threads);
  const auto wanted = losses_alone(tiny(), host);
  for (int zero = 0; zero <= 3; ++zero) {
    for (const int ranks : {2, 3}) {
      trainer::Options o = tiny();
      o.zero = zero;
      const auto id = Communicator::make_unique_id();
      ASSERT_TRUE(id.ok()) << id.status().to_string();
      std::vector<std::thread> threads;
      std::vector<std::vector<double>> of_rank(static_cast<std::size_t>(ranks));
      std::vector<std::string> failures(static_cast<std::size_t>(ranks));
      for (int rank = 0; rank < ranks; ++rank) {
        threads.emplace_back([&, rank] {
          try {
            const auto gpu = open_gpu(0);
            Communicator communicator = require(Communicator::create(rank, ranks, *id));
            Threads own(1);
            of_rank[std::size_t(rank)] = losses(o, communicator, *gpu, own);
          } catch (const Failure& failure) {
            failures[std::size_t(rank)] = failure.what();
          }
        });
      }
      for (std::thread& thread : threads) thread.join();
      for (int rank = 0; rank < ranks; ++rank) {
        EXPECT_EQ(failures[std::size_t(rank)], "");
        expect_near(of_rank[std::size_t(rank)], wanted, 2e-3, "ZeRO-" + std::to_string(zero) + " on " + std::to_string(ranks) + " ranks");
      }
    }
  }
}

}  // namespace
}  // namespace tutti::gpu
