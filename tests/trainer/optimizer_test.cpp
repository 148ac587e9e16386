// AdamW against its definition in float64; shares change nothing; schedules at their corners.
#include <gtest/gtest.h>
#include <cmath>
#include "trainer/host_backend.h"
#include "trainer/optimizer.h"
#include "trainer/random.h"
#include "trainer/schedule.h"

namespace tutti::trainer::test {
namespace {

ModelConfig small() {
  ModelConfig c;
  c.layers = 2, c.heads = c.kv_heads = 2, c.width = 16, c.hidden = 64, c.vocabulary = 100, c.context = 6;
  return c;
}

std::vector<float> gradient_at(const Layout& layout, long step) {
  std::vector<float> g(layout.count());
  for (const Tensor& tensor : layout.tensors()) {
    for (std::size_t i = 0; i < tensor.count(); ++i) {
      const std::size_t at = layout.units()[tensor.unit].offset + tensor.offset + i;
      g[at] = float(normal(std::uint64_t(step), at));
    }
  }
  return g;
}

// After three steps, with the gradient counted 0.5 times.
std::vector<float> optimized(const Layout& layout, int owners) {
  Threads threads(2);
  HostBackend<float> backend(threads);
  std::vector<float> weights(layout.count());
  for (std::size_t unit = 0; unit < layout.units().size(); ++unit) start_weights(layout, 7, unit, weights.data() + layout.units()[unit].offset);
  for (int me = 0; me < owners; ++me) {
    const Shares shares(layout, owners, me);
    Optimizer optimizer(layout, shares, AdamW{}, backend);
    for (long step = 1; step <= 3; ++step) {
      const auto g = gradient_at(layout, step);
      for (std::size_t unit = 0; unit < layout.units().size(); ++unit) {
        const std::size_t at = layout.units()[unit].offset + shares.mine(unit).begin;
        optimizer.step(unit, weights.data() + at, g.data() + at, 0.01, 0.5, step);
      }
    }
  }
  return weights;
}

TEST(OptimizerTest, IsAdamW) {
  const Layout layout(small());
  const auto weights = optimized(layout, 1);
  std::vector<float> start(layout.count());
  for (std::size_t unit = 0; unit < layout.units().size(); ++unit) start_weights(layout, 7, unit, start.data() + layout.units()[unit].offset);
  for (const Tensor& tensor : layout.tensors()) {
    for (std::size_t i = 0; i < tensor.count(); ++i) {
      const std::size_t at = layout.units()[tensor.unit].offset + tensor.offset + i;
      double w = start[at], m = 0, v = 0;
      for (long step = 1; step <= 3; ++step) {
        const double g = 0.5 * double(gradient_at(layout, step)[at]);
        m = 0.9 * m + 0.1 * g;
        v = 0.95 * v + 0.05 * g * g;
        if (tensor.shape.size() == 2) w *= 1 - 0.01 * 0.1;
        w -= 0.01 * (m / (1 - std::pow(0.9, double(step)))) / (std::sqrt(v / (1 - std::pow(0.95, double(step)))) + 1e-8);
      }
      ASSERT_NEAR(double(weights[at]), w, 1e-6 * (1 + std::abs(w))) << tensor.name << " " << i;
      if (i > 40) i += 97;
    }
  }
}

TEST(OptimizerTest, SharesChangeNoBit) {
  const Layout layout(small());
  for (const int owners : {2, 3, 4}) EXPECT_EQ(optimized(layout, owners), optimized(layout, 1)) << owners;
}

TEST(OptimizerTest, SquaresAreTheSameHoweverShared) {
  const Layout layout(small());
  Threads threads(2);
  HostBackend<float> backend(threads);
  const auto g = gradient_at(layout, 1);
  std::vector<double> whole(layout.count() / kBlock), parts(whole.size());
  double wanted = 0, sum = 0;
  for (const float x : g) wanted += double(x) * double(x);
  for (const int owners : {1, 3}) {
    for (int me = 0; me < owners; ++me) {
      const Shares shares(layout, owners, me);
      for (std::size_t unit = 0; unit < layout.units().size(); ++unit) {
        sum_squares(layout, shares, backend, unit, g.data() + layout.units()[unit].offset + shares.mine(unit).begin,
                    (owners == 1 ? whole : parts).data());
      }
    }
  }
  for (const double block : whole) sum += block;
  EXPECT_NEAR(sum, wanted, 1e-9 * wanted);
  EXPECT_EQ(whole, parts);
}

TEST(SharesTest, CoverEachUnitOnce) {
  const Layout layout(small());
  for (const int owners : {1, 2, 3, 4, 7, 50}) {
    for (std::size_t unit = 0; unit < layout.units().size(); ++unit) {
      std::size_t next = 0;
      for (int owner = 0; owner < owners; ++owner) {
        const Share share = Shares(layout, owners, owner).of(unit, owner);
        EXPECT_EQ(share.begin, next);
        EXPECT_EQ(share.count % kBlock, 0u);
        next += share.count;
      }
      EXPECT_EQ(next, layout.units()[unit].count);
    }
  }
}

TEST(ScheduleTest, Corners) {
  Schedule s;
  s.rate = 2, s.final_share = 0.1, s.warm_up = 10, s.steps = 110;
  for (const ScheduleKind kind : {ScheduleKind::linear, ScheduleKind::cosine, ScheduleKind::wsd, ScheduleKind::constant}) {
    s.kind = kind;
    EXPECT_DOUBLE_EQ(s.at(1), 0.2);
    EXPECT_DOUBLE_EQ(s.at(10), 2);
    EXPECT_DOUBLE_EQ(s.at(110), kind == ScheduleKind::constant ? 2 : 0.2);
    EXPECT_DOUBLE_EQ(s.at(200), s.at(110));
  }
  s.kind = ScheduleKind::linear;
  EXPECT_DOUBLE_EQ(s.at(60), 1.1);
  s.kind = ScheduleKind::cosine;
  EXPECT_DOUBLE_EQ(s.at(60), 1.1);
  EXPECT_DOUBLE_EQ(s.at(35), 0.2 + 1.8 * (0.5 + std::sqrt(0.125)));
  s.kind = ScheduleKind::wsd;
  EXPECT_DOUBLE_EQ(s.at(88), 2);
  EXPECT_DOUBLE_EQ(s.at(99), 1.1);
}

}  // namespace
}  // namespace tutti::trainer::test
