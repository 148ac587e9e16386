// 16-bit floats against their definition, products of them, models that calculate with them, and the loss scale that ranks share.
#include <gtest/gtest.h>
#include <algorithm>
#include <cmath>
#include <limits>
#include <thread>
#include "tests/trainer/command.h"
#include "trainer/failure.h"
#include "trainer/gemm.h"
#include "trainer/loss_scaler.h"
#include "trainer/host_backend.h"
#include "trainer/model.h"
#include "trainer/precision.h"
#include "trainer/random.h"
#include "trainer/text.h"
#include "trainer/training.h"

namespace tutti::trainer::test {
namespace {

// What the bits of a float with `exponent` and `mantissa` bits mean (IEEE 754), for positive finite ones in rising order.
std::vector<double> values_of(int exponent, int mantissa) {
  std::vector<double> all;
  const int bias = (1 << (exponent - 1)) - 1;
  for (int e = 0; e < (1 << exponent) - 1; ++e) {
    for (int m = 0; m < 1 << mantissa; ++m) all.push_back(std::ldexp(e == 0 ? m : m + (1 << mantissa), std::max(e, 1) - bias - mantissa));
  }
  return all;
}

// The nearest of `values`, the one with the even number of two; infinity where the next step beyond the last would be as near.
double nearest(const std::vector<double>& values, double x) {
  if (std::signbit(x)) return -nearest(values, -x);
  const double last = values.back(), step = last - values[values.size() - 2];
  if (x >= last + step / 2) return std::numeric_limits<double>::infinity();
  const auto above = std::lower_bound(values.begin(), values.end(), x);
  if (above == values.end()) return last;
  if (*above == x || above == values.begin()) return *above;
  const double up = *above - x, down = x - *(above - 1);
  if (up == down) return (above - values.begin()) % 2 == 0 ? *above : *(above - 1);
  return up < down ? *above : *(above - 1);
}

struct Kind {
  Precision precision;
  int exponent, mantissa;
};
class Narrow : public testing::TestWithParam<Kind> {};

TEST_P(Narrow, RoundsToTheNearest) {
  const Kind kind = GetParam();
  const auto values = values_of(kind.exponent, kind.mantissa);
  std::vector<float> x = {0.0f, -0.0f, 65504.0f, 65519.996f, 65520.0f, 1e-8f, 0x1p-25f, 0x1.000002p-25f, 0x1p-24f, 0x1p-14f, 0x1.ffep-15f,
                          std::numeric_limits<float>::max(), std::numeric_limits<float>::denorm_min(), std::numeric_limits<float>::infinity()};
  for (std::size_t i = 0; i < values.size(); i += 7) {      // and half-way between two, where even decides
    if (values[i] < 3e38) x.push_back(float(values[i]));
    if (i + 1 < values.size() && values[i] > 1e-35) x.push_back(float((values[i] + values[i + 1]) / 2));
  }
  for (std::uint64_t i = 0; i < 100000; ++i) {
    const float any = std::bit_cast<float>(std::uint32_t(mix(11, i)));
    if (!std::isnan(any)) x.push_back(any);
    x.push_back(float(normal(12, i) * std::exp2(uniform(13, i) * 60 - 40)));
  }
  std::vector<float> out(x.size()), back(x.size());
  std::vector<std::uint16_t> bits(x.size());
  round_to(kind.precision, x.size(), x.data(), out.data());
  pack(kind.precision, x.size(), x.data(), bits.data());
  unpack(kind.precision, x.size(), bits.data(), back.data());
  for (std::size_t i = 0; i < x.size(); ++i) {
    ASSERT_EQ(double(out[i]), nearest(values, x[i])) << x[i];
    ASSERT_EQ(std::bit_cast<std::uint32_t>(back[i]), std::bit_cast<std::uint32_t>(out[i])) << x[i];
  }
}

TEST_P(Narrow, EveryPatternComesBack) {
  const Kind kind = GetParam();
  const auto values = values_of(kind.exponent, kind.mantissa);
  for (std::uint32_t i = 0; i < 1u << 16; ++i) {
    const auto bits = std::uint16_t(i);
    float x = 0;
    unpack(kind.precision, 1, &bits, &x);
    const std::size_t place = i & 0x7fffu;
    if (place < values.size()) {
      ASSERT_EQ(double(std::abs(x)), values[place]) << i;
    } else {
      ASSERT_EQ(std::isinf(x), place == values.size()) << i;
      ASSERT_EQ(std::isnan(x), place > values.size()) << i;
    }
    std::uint16_t again = 0;
    pack(kind.precision, 1, &x, &again);
    if (!std::isnan(x)) {
      ASSERT_EQ(again, bits);
    }
    float nan = 0;
    unpack(kind.precision, 1, &again, &nan);
    ASSERT_EQ(std::isnan(nan), std::isnan(x));
  }
}

std::vector<double> product_of(std::size_t m, std::size_t n, std::size_t k, const std::vector<float>& a, const std::vector<float>& b, Form of_a,
                               Form of_b, Precision precision) {
  std::vector<float> ra(a.size()), rb(b.size());
  round_to(precision, a.size(), a.data(), ra.data());
  round_to(precision, b.size(), b.data(), rb.data());
  std::vector<double> c(m * n);
  for (std::size_t i = 0; i < m; ++i) {
    for (std::size_t l = 0; l < k; ++l) {
      const double x = of_a == Form::plain ? ra[i * k + l] : ra[l * m + i];
      for (std::size_t j = 0; j < n; ++j) c[i * n + j] += x * (of_b == Form::plain ? rb[l * n + j] : rb[j * k + l]);
    }
  }
  return c;
}

TEST_P(Narrow, ProductsAreThoseOfRoundedInputs) {
  const Precision precision = GetParam().precision;
  keep_blas_on_one_thread();
  Threads threads(2);
  const std::size_t shapes[][3] = {{3, 5, 7}, {1100, 9, 33}, {9, 1100, 33}, {17, 19, 2100}, {530, 520, 40}};
  for (const auto& [m, n, k] : shapes) {
    for (int form = 0; form < 4; ++form) {
      const Form fa = form & 1 ? Form::transposed : Form::plain, fb = form & 2 ? Form::transposed : Form::plain;
      std::vector<float> a(m * k), b(k * n), c(m * n, 3.0f);
      for (std::size_t i = 0; i < a.size(); ++i) a[i] = float(normal(1, i));
      for (std::size_t i = 0; i < b.size(); ++i) b[i] = float(normal(2, i));
      product<float>(threads, m, n, k, 2.0f, {a.data(), fa == Form::plain ? k : m, fa}, {b.data(), fb == Form::plain ? n : k, fb}, 0.5f, c.data(), n,
                     precision);
      const auto wanted = product_of(m, n, k, a, b, fa, fb, precision), exact = product_of(m, n, k, a, b, fa, fb, Precision::f32);
      double off = 0, off_exact = 0;
      for (std::size_t i = 0; i < c.size(); ++i) {
        off = std::max(off, std::abs(double(c[i]) - (2 * wanted[i] + 1.5)));
        off_exact = std::max(off_exact, std::abs(double(c[i]) - (2 * exact[i] + 1.5)));
      }
      EXPECT_LT(off, 2e-5 * std::sqrt(double(k)) + 1e-5) << m << " " << n << " " << k << " " << form;
      EXPECT_GT(off_exact, 10 * off) << "nothing was rounded";
    }
  }
}

ModelConfig small() {
  ModelConfig c;
  c.layers = 3, c.heads = c.kv_heads = 4, c.width = 64, c.hidden = 256, c.vocabulary = 97, c.context = 40;
  return c;
}

template <class T>
std::vector<T> gradient_of(const ModelConfig& config, bool recompute, Precision precision, double& loss, std::size_t& bytes) {
  const Layout layout(config);
  Threads threads(2);
  WholeWeights<T> weights(layout);
  WholeGradients<T> gradients(layout);
  for (const Tensor& tensor : layout.tensors()) {
    for (std::size_t i = 0; i < tensor.count(); ++i) weights.at(tensor.unit)[tensor.offset + i] = T(float(0.1 * normal(tensor.offset, i) + tensor.start));
  }
  HostBackend<T> backend(threads);
  Model<T> model(config, {2, config.context}, recompute, backend, precision);
  std::vector<Token> tokens, targets;
  for (std::size_t i = 0; i < 2 * config.context; ++i) tokens.push_back(Token(mix(1, i) % 97)), targets.push_back(Token(mix(2, i) % 97));
  loss = model.forward(weights, tokens.data(), targets.data(), {});
  model.backward(weights, gradients, tokens.data(), targets.data(), {}, T(256));
  bytes = model.activation_bytes();
  return gradients.data();
}

TEST_P(Narrow, ModelsStayNearTheExactOne) {
  const Precision precision = GetParam().precision;
  const double unit = std::exp2(-GetParam().mantissa);
  for (const bool llama : {false, true}) {
    ModelConfig config = small();
    if (llama) config.kv_heads = 2, config.position = PositionKind::rope, config.norm = NormKind::rms, config.activation = ActivationKind::swiglu, config.bias = false;
    double exact_loss = 0, loss = 0, wide_loss = 0, again_loss = 0;
    std::size_t bytes = 0, exact_bytes = 0, wide_bytes = 0;
    const auto exact = gradient_of<double>(config, false, Precision::f32, exact_loss, exact_bytes);
    const auto wide = gradient_of<float>(config, false, Precision::f32, wide_loss, wide_bytes);
    const auto narrow = gradient_of<float>(config, false, precision, loss, bytes);
    EXPECT_NEAR(loss, exact_loss, 4 * unit * exact_loss);
    double off = 0, size = 0;
    for (std::size_t i = 0; i < exact.size(); ++i) off += std::pow(double(narrow[i]) - exact[i], 2), size += exact[i] * exact[i];
    EXPECT_LT(std::sqrt(off / size), 10 * unit);
    EXPECT_GT(std::sqrt(off / size), unit / 20) << "nothing was rounded";
    // Nothing is lost by keeping it in 16 bits: computed again it has the same bits.
    EXPECT_EQ(gradient_of<float>(config, true, precision, again_loss, bytes), narrow);
    EXPECT_EQ(again_loss, loss);
  }
}

TEST_P(Narrow, TheLargeActivationsTakeHalf) {
  Threads threads(1);
  HostBackend<float> backend(threads);
  const auto more = [&](Precision precision) {      // of three blocks more
    ModelConfig few = small(), many = small();
    many.layers = few.layers + 3;
    const BatchShape shape{2, few.context};
    return double(Model<float>(many, shape, false, backend, precision).activation_bytes() - Model<float>(few, shape, false, backend, precision).activation_bytes());
  };
  // What stays in f32: 2 of the 16 widths of a block, on the residual stream, and figures of a row.
  EXPECT_NEAR(more(GetParam().precision) / more(Precision::f32), (2 + 14 * 0.5) / 16, 0.03);
}

INSTANTIATE_TEST_SUITE_P(All, Narrow, testing::Values(Kind{Precision::bf16, 8, 7}, Kind{Precision::f16, 5, 10}),
                         [](const auto& test) { return std::string(name_of(test.param.precision)); });

TEST(LossScalerTest, FallsAtOnceAndRisesSlowly) {
  LossScaler scaler(true);
  scaler.overflowed();
  EXPECT_EQ(scaler.scale(), LossScaler::kStart / 2);
  for (long i = 0; i < LossScaler::kCalm - 1; ++i) scaler.went_well();
  EXPECT_EQ(scaler.scale(), LossScaler::kStart / 2);
  scaler.went_well();
  EXPECT_EQ(scaler.scale(), LossScaler::kStart);
  for (long i = 0; i < 40 * LossScaler::kCalm; ++i) scaler.went_well();
  EXPECT_EQ(scaler.scale(), LossScaler::kMost);
  while (scaler.can_fall()) scaler.overflowed();
  EXPECT_EQ(scaler.scale(), 1);
  LossScaler none(false);
  none.set(4, 0);
  none.went_well();
  EXPECT_EQ(none.scale(), 1);
  EXPECT_FALSE(none.can_fall());
}

// One rank's gradients overflow: all leave the step out, whoever owns what.
TEST(LossScalerTest, OneRanksOverflowIsEverybodys) {
  keep_blas_on_one_thread();
  for (int zero = 0; zero <= 3; ++zero) {
    Options options;
    options.model.layers = 2, options.model.heads = options.model.kv_heads = 2, options.model.width = 32, options.model.hidden = 128;
    options.model.context = 16, options.batch = 2, options.micro_batches = 3, options.precision = Precision::f16, options.zero = zero;
    options.schedule.steps = options.steps = 3, options.schedule.rate = 0.01;
    const auto id = Communicator::make_unique_id();
    ASSERT_TRUE(id.ok()) << id.status().to_string();
    struct Seen {
      StepResult lone, next;
      Digest before, after, last;
      double scale = 0;
      std::string failure;
    };
    std::vector<Seen> seen(3);
    std::vector<std::thread> ranks;
    for (int rank = 0; rank < 3; ++rank) {
      ranks.emplace_back([&, rank] {
        Seen& mine = seen[std::size_t(rank)];
        try {
          Communicator communicator = require(Communicator::create(rank, 3, *id));
          Threads threads(1);
          HostBackend<float> backend(threads);
          Trace trace(false, rank);
          Training training(options, Tokens::of_text(generated_text(1 << 14)), communicator, backend, threads, trace);
          training.start();
          mine.before = training.weights_hash();
          if (rank == 1) training.scaler().set(LossScaler::kMost, 0);
          mine.lone = training.step();
          mine.after = training.weights_hash();
          mine.scale = training.scaler().scale();
          training.scaler().set(1024, 0);
          mine.next = training.step();
          mine.last = training.weights_hash();
          training.compare_ranks();
          require(communicator.barrier().wait());
        } catch (const Failure& failure) {
          mine.failure = failure.what();
        }
      });
    }
    for (std::thread& rank : ranks) rank.join();
    for (int rank = 0; rank < 3; ++rank) {
      const Seen& mine = seen[std::size_t(rank)];
      EXPECT_EQ(mine.failure, "");
      EXPECT_TRUE(mine.lone.overflowed && mine.lone.skipped) << zero << " " << rank;
      EXPECT_EQ(mine.after, mine.before);
      EXPECT_EQ(mine.scale, rank == 1 ? LossScaler::kMost / 2 : LossScaler::kStart / 2);
      EXPECT_FALSE(mine.next.skipped);
      EXPECT_NE(mine.last, mine.after);
    }
  }
}

double loss_after(const Outcome& outcome, int steps) { return std::stod("0" + outcome.last_after(fmt::format("step {0}/{0}  loss ", steps))); }

TEST(PrecisionTest, TrainsAsF32Does) {
  const std::string flags = kSmall + "--steps 12 --rate 0.01 ";
  const double wanted = loss_after(train(flags), 12);
  ASSERT_GT(wanted, 1);
  for (const std::string dtype : {"bf16", "f16"}) EXPECT_NEAR(loss_after(train(flags + "--dtype " + dtype), 12), wanted, 0.05) << dtype;
  for (int zero = 0; zero <= 3; ++zero) {
    const Outcome outcome = train_on(3, "shm", flags + fmt::format("--wire bf16 --check-every 1 --bucket-mb 0.01 --zero {}", zero));
    EXPECT_NEAR(loss_after(outcome, 12), wanted, 0.02) << outcome.text;
  }
}

TEST(PrecisionTest, TheWireIsHalfAsBusy) {
  const Folder folder;
  const auto bytes = [&](const std::string& wire) {
    const Outcome outcome = train_on(2, "shm", kSmall + "--steps 2 --checkpoint-every 0 --run " + (folder / wire) + " --wire " + wire);
    const std::string log = read_text(folder / (wire + "/rank-0.jsonl"));
    return std::stod("0" + log.substr(log.rfind("\"bytes\":") + 8));
  };
  const double wide = bytes("f32"), narrow = bytes("bf16");
  ASSERT_GT(narrow, 1000);
  EXPECT_NEAR(narrow / wide, 0.5, 0.1);
}

TEST(PrecisionTest, DeterministicRunsKeepTheirBitsInSixteenBits) {
  const std::string flags = kSmall + "--steps 4 --rate 0.01 --deterministic --hash --dtype f16 ";
  const std::string wanted = train(flags).last_after("weights sha256 ");
  ASSERT_EQ(wanted.size(), 64u);
  EXPECT_NE(wanted, train(kSmall + "--steps 4 --rate 0.01 --deterministic --hash").last_after("weights sha256 "));
  for (const int ranks : {2, 3}) EXPECT_EQ(train_on(ranks, "shm", flags + "--zero 1").last_after("weights sha256 "), wanted) << ranks;
  const Outcome refused = train(flags + "--wire bf16");
  EXPECT_NE(refused.status, 0);
  EXPECT_TRUE(refused.says("--deterministic needs --wire f32")) << refused.text;
}

// The scale goes on where it stood, on another number of ranks too.
TEST(PrecisionTest, TheLossScaleIsPartOfACheckpoint) {
  const Folder folder;
  const std::string flags = kSmall + "--dtype f16 --checkpoint-every 2 --run " + (folder / "run") + " ";
  ASSERT_EQ(train(flags + "--steps 2").status, 0);
  const std::string manifest = folder / "run/checkpoint-00000002/manifest.json";
  EXPECT_NE(read_text(manifest).find("\"loss_scale\": 65536.0"), std::string::npos) << read_text(manifest);
  std::string changed = read_text(manifest);
  changed.replace(changed.find("65536.0"), 7, "32768.0");
  write_file(manifest, changed);
  const Outcome outcome = train_on(2, "shm", flags + "--steps 4 --resume auto");
  EXPECT_TRUE(outcome.says("scale 32768")) << outcome.text;
}

}  // namespace
}  // namespace tutti::trainer::test
