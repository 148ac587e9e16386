// Each layer's backward pass against central differences in float64, and its f32 form against its f64 form.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include "tests/trainer/differences.h"
#include "trainer/activation.h"
#include "trainer/attention.h"
#include "trainer/embedding.h"
#include "trainer/linear.h"
#include "trainer/loss.h"
#include "trainer/norm.h"
#include "trainer/numbers.h"
#include "trainer/rope.h"

namespace tutti::trainer::test {
namespace {

using Numbers = std::vector<double>;

// What the value of a layer is weighed with, so that it becomes one number whose gradient is `weights`.
struct Layers : testing::Test {
  Layers() { keep_blas_on_one_thread(); }
  Threads threads{2};
};

TEST_F(Layers, Linear) {
  constexpr std::size_t kRows = 5, kIn = 7, kOut = 6;
  Numbers x = numbers(1, kRows * kIn), w = numbers(2, kIn * kOut), b = numbers(3, kOut), onto = numbers(4, kRows * kOut), y(kRows * kOut);
  const Numbers up = numbers(5, kRows * kOut);
  const auto value = [&] {
    linear_forward(threads, kRows, kIn, kOut, x.data(), w.data(), b.data(), y.data(), onto.data());
    return dot(y, up);
  };
  Numbers dx(x.size()), dw(w.size(), 1.0), db(b.size(), 1.0);
  linear_backward(threads, kRows, kIn, kOut, x.data(), w.data(), up.data(), dx.data(), dw.data(), db.data(), 1.0);
  for (double& d : dw) d -= 1;       // beta = 1 adds to what was there
  for (double& d : db) d -= 1;
  expect_gradient("x", x, dx, value);
  expect_gradient("w", w, dw, value);
  expect_gradient("b", b, db, value);
}

TEST_F(Layers, Norms) {
  constexpr std::size_t kRows = 5, kWidth = 70;
  for (const NormKind kind : {NormKind::layer, NormKind::rms}) {
    Numbers x = numbers(1, kRows * kWidth), w = numbers(2, kWidth), b = numbers(3, kWidth), y(x.size()), mean(kRows), scale(kRows);
    const Numbers up = numbers(5, x.size());
    const double* bias = kind == NormKind::layer ? b.data() : nullptr;
    const auto value = [&] {
      norm_forward(threads, kind, kRows, kWidth, x.data(), w.data(), bias, y.data(), mean.data(), scale.data());
      return dot(y, up);
    };
    value();
    Numbers dx(x.size()), dw(kWidth, 1.0), db(kWidth, 1.0);
    norm_backward(threads, kind, kRows, kWidth, x.data(), w.data(), mean.data(), scale.data(), up.data(), dx.data(), dw.data(),
                  bias ? db.data() : nullptr, 1.0);
    for (double& d : dw) d -= 1;
    for (double& d : db) d -= 1;
    expect_gradient("x", x, dx, value);
    expect_gradient("weight", w, dw, value);
    if (bias) expect_gradient("bias", b, db, value);
  }
}

TEST_F(Layers, Activations) {
  constexpr std::size_t kRows = 3, kWidth = 20;
  for (const ActivationKind kind : {ActivationKind::gelu, ActivationKind::swiglu}) {
    Numbers x = numbers(1, kRows * kWidth * inputs_of(kind)), y(kRows * kWidth), dx(x.size());
    const Numbers up = numbers(5, y.size());
    activation_backward(threads, kind, kRows, kWidth, x.data(), up.data(), dx.data());
    expect_gradient("x", x, dx, [&] {
      activation_forward(threads, kind, kRows, kWidth, x.data(), y.data());
      return dot(y, up);
    });
  }
}

TEST_F(Layers, Embedding) {
  constexpr std::size_t kBatch = 2, kContext = 3, kWidth = 5, kVocabulary = 4;
  const std::vector<Token> tokens = {1, 3, 1, 0, 1, 3};
  Numbers table = numbers(1, kVocabulary * kWidth), positions = numbers(2, kContext * kWidth), x(tokens.size() * kWidth);
  const Numbers up = numbers(5, x.size());
  Numbers d_table(table.size()), d_positions(positions.size());
  embedding_backward(threads, kBatch, kContext, kWidth, tokens.data(), up.data(), d_table.data(), d_positions.data(), 0.0);
  const auto value = [&] {
    embedding_forward(threads, kBatch, kContext, kWidth, tokens.data(), table.data(), positions.data(), x.data());
    return dot(x, up);
  };
  expect_gradient("table", table, d_table, value);
  expect_gradient("positions", positions, d_positions, value);
}

TEST_F(Layers, Rope) {
  constexpr std::size_t kRows = 6, kContext = 3, kHeads = 2, kSize = 8, kStride = 20;
  const Numbers start = numbers(1, kRows * kStride), up = numbers(5, start.size());
  Numbers x = start, d = up;
  rope(threads, Turn::backward, kRows, kContext, kHeads, kSize, d.data(), kStride);
  expect_gradient("x", x, d, [&] {
    Numbers y = x;
    rope(threads, Turn::forward, kRows, kContext, kHeads, kSize, y.data(), kStride);
    return dot(y, up);
  });
  // Scores depend on the distance alone: (q at 2) . (k at 1) = (q at 1) . (k at 0).
  const auto score = [&](std::size_t at_q, std::size_t at_k) {
    Numbers q(kContext * kSize), k(kContext * kSize);
    for (std::size_t i = 0; i < kSize; ++i) q[at_q * kSize + i] = start[i], k[at_k * kSize + i] = start[i + kSize];
    rope(threads, Turn::forward, kContext, kContext, 1, kSize, q.data(), kSize);
    rope(threads, Turn::forward, kContext, kContext, 1, kSize, k.data(), kSize);
    double sum = 0;
    for (std::size_t i = 0; i < kSize; ++i) sum += q[at_q * kSize + i] * k[at_k * kSize + i];
    return sum;
  };
  EXPECT_NEAR(score(2, 1), score(1, 0), 1e-12);
  EXPECT_GT(std::abs(score(2, 1) - score(1, 1)), 1e-3);
}

TEST_F(Layers, Loss) {
  constexpr std::size_t kRows = 3, kVocabulary = 21;
  const std::vector<Token> targets = {0, 20, 7};
  Numbers logits = numbers(1, kRows * kVocabulary), losses(kRows), log_sums(kRows);
  const auto value = [&] {
    loss_forward(threads, kRows, kVocabulary, logits.data(), targets.data(), losses.data(), log_sums.data());
    return 0.7 * (losses[0] + losses[1] + losses[2]);
  };
  value();
  Numbers d = logits;
  loss_backward(threads, kRows, kVocabulary, targets.data(), log_sums.data(), 0.7, d.data());
  expect_gradient("logits", logits, d, value);
}

// Softmax over the visible keys, written down as the definition says.
Numbers plain_attention(const AttentionShape& s, const Numbers& qkv) {
  Numbers out(s.batch * s.context * s.width());
  for (std::size_t b = 0; b < s.batch; ++b) {
    for (std::size_t h = 0; h < s.heads; ++h) {
      const std::size_t shared = h / (s.heads / s.kv_heads);
      const auto at = [&](std::size_t t, std::size_t head, std::size_t i) {
        return qkv[(b * s.context + t) * s.qkv_width() + head * s.head_size + i];
      };
      for (std::size_t t = 0; t < s.context; ++t) {
        Numbers p(t + 1);
        double sum = 0;
        for (std::size_t k = 0; k <= t; ++k) {
          for (std::size_t i = 0; i < s.head_size; ++i) p[k] += at(t, h, i) * at(k, s.heads + shared, i);
          sum += p[k] = std::exp(p[k] / std::sqrt(double(s.head_size)));
        }
        for (std::size_t i = 0; i < s.head_size; ++i) {
          double& o = out[(b * s.context + t) * s.width() + h * s.head_size + i];
          for (std::size_t k = 0; k <= t; ++k) o += p[k] / sum * at(k, s.heads + s.kv_heads + shared, i);
        }
      }
    }
  }
  return out;
}

// Contexts within one block of 64, at its edge, and of several; one key head a query head, and shared.
const std::vector<AttentionShape> kShapes = {{2, 5, 2, 2, 4}, {1, 64, 2, 1, 3}, {1, 65, 4, 2, 4}, {1, 150, 1, 1, 2}};

TEST_F(Layers, AttentionIsWhatTheDefinitionSays) {
  for (const AttentionShape& s : kShapes) {
    const Numbers qkv = numbers(1, s.batch * s.context * s.qkv_width());
    Numbers out(s.batch * s.context * s.width()), log_sums(s.batch * s.heads * s.context);
    attention_forward(threads, s, {}, qkv.data(), out.data(), log_sums.data());
    const Numbers wanted = plain_attention(s, qkv);
    for (std::size_t i = 0; i < out.size(); ++i) ASSERT_NEAR(out[i], wanted[i], 1e-12) << "context " << s.context << ", " << i;
  }
}

TEST_F(Layers, Attention) {
  for (const AttentionShape& s : kShapes) {
    for (const float rate : {0.0f, 0.3f}) {
      const Dropout dropout{rate, 17, 3};
      Numbers qkv = numbers(1, s.batch * s.context * s.qkv_width());
      Numbers out(s.batch * s.context * s.width()), log_sums(s.batch * s.heads * s.context), d(qkv.size());
      const Numbers up = numbers(5, out.size());
      const auto value = [&] {
        attention_forward(threads, s, dropout, qkv.data(), out.data(), log_sums.data());
        return dot(out, up);
      };
      value();
      attention_backward(threads, s, dropout, qkv.data(), out.data(), log_sums.data(), up.data(), d.data());
      expect_gradient(fmt::format("qkv, context {}, dropout {}", s.context, rate), qkv, d, value);
    }
  }
}

TEST_F(Layers, DropoutKeepsTheMeanAndTheRate) {
  constexpr std::size_t kSamples = 4, kLength = 20000;
  Numbers x(kSamples * kLength, 1.0);
  drop(threads, {0.2f, 5, 0}, kSamples, kLength, x.data());
  double kept = 0;
  for (const double value : x) {
    ASSERT_TRUE(value == 0 || value == double(1.0f / 0.8f));
    kept += value > 0;
  }
  EXPECT_NEAR(kept / double(x.size()), 0.8, 0.008);       // 5 standard deviations
  // Sample 1 of this batch is sample 0 of the next: the choices follow the sample, not its place.
  Numbers y(kLength, 1.0);
  drop(threads, {0.2f, 5, 1}, 1, kLength, y.data());
  EXPECT_TRUE(std::equal(y.begin(), y.end(), x.begin() + kLength));
}

TEST(NumbersTest, ExpIsExact) {
  for (float x = -86.9f; x < 87.9f; x += 0.0137f) {
    const double wanted = std::exp(double(x));
    ASSERT_NEAR(double(exp_of(x)), wanted, 2.5e-7 * wanted) << x;
  }
  EXPECT_EQ(exp_of(0.0f), 1.0f);
  EXPECT_LT(exp_of(-1e30f), 1e-37f);
}

TEST(NumbersTest, SumsAreOfAllNumbers) {
  for (std::size_t n = 0; n < 70; ++n) {
    EXPECT_EQ(sum_of<double>(n, [](std::size_t i) { return double(i + 1); }), double(n * (n + 1)) / 2);
    EXPECT_EQ(max_of<double>(n, -1, [&](std::size_t i) { return double((i * 37) % 71); }),
              [&] { double top = -1; for (std::size_t i = 0; i < n; ++i) top = std::max(top, double((i * 37) % 71)); return top; }());
  }
}

TEST(ThreadsTest, EveryPartRunsOnce) {
  Threads threads(3);
  for (std::size_t parts = 0; parts < 200; ++parts) {
    std::vector<int> seen(parts);
    threads.each(parts, [&](std::size_t i) { ++seen[i]; });
    EXPECT_EQ(seen, std::vector<int>(parts, 1));
    std::vector<int> covered(parts);
    threads.ranges(parts, 7, [&](std::size_t begin, std::size_t end) { for (; begin < end; ++begin) ++covered[begin]; });
    EXPECT_EQ(covered, std::vector<int>(parts, 1));
  }
}

}  // namespace
}  // namespace tutti::trainer::test
