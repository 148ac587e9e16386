#pragma once
// Kernels whose blocks go over rows, or over columns of rows, together.
#include "trainer/cuda/element_body.h"
#include "trainer/layout.h"
#include "trainer/norm.h"

namespace tutti::trainer::cuda {

// f(row) for the rows that are this block's.
template <class Thread, class F>
TUTTI_BODY void each_row(Thread& thread, std::size_t rows, F f) {
  for (std::size_t r = thread.block(); r < rows; r += thread.blocks()) f(r);
}
// f(i) for what of [0, n) is this thread's in its block.
template <class Thread, class F>
TUTTI_BODY void across(Thread& thread, std::size_t n, F f) {
  for (std::size_t i = thread.in_block(); i < n; i += thread.block_size()) f(i);
}
template <class Thread, class F>
TUTTI_BODY float sum_across(Thread& thread, std::size_t n, F f) {
  float sum = 0;
  across(thread, n, [&](std::size_t i) { sum += f(i); });
  return thread.sum(sum);
}

struct NormForward {
  struct Arguments {
    NormKind kind;
    std::size_t rows, width;
    const float *x, *weight, *bias;
    float *y, *mean, *scale;
  };
  using Shared = Nothing;
  template <class Thread>
  TUTTI_BODY void operator()(const Arguments& a, Thread& thread, Shared&) const {
    each_row(thread, a.rows, [&](std::size_t r) {
      const float* in = a.x + r * a.width;
      float* out = a.y + r * a.width;
      const float m = a.kind == NormKind::rms ? 0.0f : sum_across(thread, a.width, [&](std::size_t i) { return in[i]; }) / float(a.width);
      const float variance = sum_across(thread, a.width, [&](std::size_t i) { return (in[i] - m) * (in[i] - m); }) / float(a.width);
      const float s = 1 / sqrtf(variance + float(kNormEpsilon));
      across(thread, a.width, [&](std::size_t i) { out[i] = (in[i] - m) * s * a.weight[i] + (a.bias ? a.bias[i] : 0.0f); });
      if (thread.in_block() == 0) a.mean[r] = m, a.scale[r] = s;
    });
  }
};

struct NormBack {      // dx
  struct Arguments {
    NormKind kind;
    std::size_t rows, width;
    const float *x, *weight, *mean, *scale, *dy;
    float* dx;
  };
  using Shared = Nothing;
  template <class Thread>
  TUTTI_BODY void operator()(const Arguments& a, Thread& thread, Shared&) const {
    each_row(thread, a.rows, [&](std::size_t r) {
      const float *in = a.x + r * a.width, *up = a.dy + r * a.width;
      float* down = a.dx + r * a.width;
      const float m = a.mean[r], s = a.scale[r], n = float(a.width);
      const float average =
          a.kind == NormKind::rms ? 0.0f : sum_across(thread, a.width, [&](std::size_t i) { return up[i] * a.weight[i]; }) / n;
      const float along = sum_across(thread, a.width, [&](std::size_t i) { return up[i] * a.weight[i] * (in[i] - m) * s; }) / n;
      across(thread, a.width, [&](std::size_t i) { down[i] += s * (up[i] * a.weight[i] - average - (in[i] - m) * s * along); });
    });
  }
};

// A block adds up kColumns columns at a time: each of its rows of threads takes every so many rows, then those are added in order.
struct Columns {
  float parts[2][kThreads];
};

// value(row, column, sums): adds a number to each of the two; out(column, sums).
template <class Thread, class Value, class Out>
TUTTI_BODY void add_columns(Thread& thread, Columns& shared, std::size_t rows, std::size_t width, Value value, Out out) {
  const std::size_t lane = thread.in_block() / kColumns, lanes = thread.block_size() / kColumns;
  each_row(thread, (width + kColumns - 1) / kColumns, [&](std::size_t group) {
    const std::size_t column = group * kColumns + thread.in_block() % kColumns;
    float sums[2] = {0, 0};
    for (std::size_t r = lane; column < width && r < rows; r += lanes) value(r, column, sums);
    for (int k = 0; k < 2; ++k) shared.parts[k][thread.in_block()] = sums[k];
    thread.sync();
    if (lane == 0 && column < width) {
      for (std::size_t other = 1; other < lanes; ++other) {
        for (int k = 0; k < 2; ++k) sums[k] += shared.parts[k][other * kColumns + thread.in_block()];
      }
      out(column, sums);
    }
    thread.sync();
  });
}

TUTTI_BODY float onto(float sum, float beta, const float& old) { return sum + (beta == 0 ? 0.0f : beta * old); }

struct NormWeightsBack {
  struct Arguments {
    std::size_t rows, width;
    const float *x, *mean, *scale, *dy;
    float *d_weight, *d_bias;
    float beta;
  };
  using Shared = Columns;
  template <class Thread>
  TUTTI_BODY void operator()(const Arguments& a, Thread& thread, Shared& shared) const {
    add_columns(
        thread, shared, a.rows, a.width,
        [&](std::size_t r, std::size_t i, float* sums) {
          const float up = a.dy[r * a.width + i];
          sums[0] += up * (a.x[r * a.width + i] - a.mean[r]) * a.scale[r];
          sums[1] += up;
        },
        [&](std::size_t i, const float* sums) {
          a.d_weight[i] = onto(sums[0], a.beta, a.d_weight[i]);
          if (a.d_bias) a.d_bias[i] = onto(sums[1], a.beta, a.d_bias[i]);
        });
  }
};

struct AddColumns {      // out = the sum of rows + beta out
  struct Arguments {
    std::size_t rows, width;
    const float* x;
    float* out;
    float beta;
  };
  using Shared = Columns;
  template <class Thread>
  TUTTI_BODY void operator()(const Arguments& a, Thread& thread, Shared& shared) const {
    add_columns(
        thread, shared, a.rows, a.width, [&](std::size_t r, std::size_t i, float* sums) { sums[0] += a.x[r * a.width + i]; },
        [&](std::size_t i, const float* sums) { a.out[i] = onto(sums[0], a.beta, a.out[i]); });
  }
};

// The block of a token's first row adds up all rows of that token, in their order; the others have nothing to do.
struct EmbedBack {
  struct Arguments {
    std::size_t rows, width;
    const Token* tokens;
    const float* dx;
    float* d_table;
  };
  struct Shared {
    std::uint8_t same[kThreads];
  };
  template <class Thread>
  TUTTI_BODY void operator()(const Arguments& a, Thread& thread, Shared& shared) const {
    each_row(thread, a.rows, [&](std::size_t r) {
      bool earlier = false;
      across(thread, r, [&](std::size_t other) { earlier |= a.tokens[other] == a.tokens[r]; });
      if (thread.any(earlier)) return;
      float* row = a.d_table + std::size_t(a.tokens[r]) * a.width;
      for (std::size_t first = r; first < a.rows; first += thread.block_size()) {
        const std::size_t mine = first + thread.in_block();
        const bool same = mine < a.rows && a.tokens[mine] == a.tokens[r];
        shared.same[thread.in_block()] = same;
        if (thread.any(same)) {
          for (std::size_t k = 0; k < thread.block_size(); ++k) {
            if (shared.same[k]) across(thread, a.width, [&](std::size_t i) { row[i] += a.dx[(first + k) * a.width + i]; });
          }
        }
        thread.sync();
      }
    });
  }
};

struct LossForward {
  struct Arguments {
    std::size_t rows, vocabulary;
    const float* logits;
    const Token* targets;
    float *losses, *log_sums;
  };
  using Shared = Nothing;
  template <class Thread>
  TUTTI_BODY void operator()(const Arguments& a, Thread& thread, Shared&) const {
    each_row(thread, a.rows, [&](std::size_t r) {
      const float* row = a.logits + r * a.vocabulary;
      float top = row[0];
      across(thread, a.vocabulary, [&](std::size_t i) { top = row[i] > top ? row[i] : top; });
      top = thread.largest(top);
      const float sum = sum_across(thread, a.vocabulary, [&](std::size_t i) { return exp_of(row[i] - top); });
      if (thread.in_block() != 0) return;
      a.log_sums[r] = top + logf(sum);
      a.losses[r] = a.log_sums[r] - row[a.targets[r]];
    });
  }
};

struct LossBack {
  struct Arguments {
    std::size_t rows, vocabulary;
    const Token* targets;
    const float* log_sums;
    float scale;
    float* logits;
  };
  using Shared = Nothing;
  template <class Thread>
  TUTTI_BODY void operator()(const Arguments& a, Thread& thread, Shared&) const {
    each_row(thread, a.rows, [&](std::size_t r) {
      float* row = a.logits + r * a.vocabulary;
      across(thread, a.vocabulary, [&](std::size_t i) {
        row[i] = exp_of(row[i] - a.log_sums[r]) * a.scale - (i == std::size_t(a.targets[r]) ? a.scale : 0.0f);
      });
    });
  }
};

struct SumSquares {      // of each block of kBlock numbers
  struct Arguments {
    std::size_t blocks;
    const float* x;
    double* squares;
  };
  using Shared = Nothing;
  template <class Thread>
  TUTTI_BODY void operator()(const Arguments& a, Thread& thread, Shared&) const {
    each_row(thread, a.blocks, [&](std::size_t block) {
      double sum = 0;
      across(thread, kBlock, [&](std::size_t i) { sum += double(a.x[block * kBlock + i]) * double(a.x[block * kBlock + i]); });
      sum = thread.sum(sum);
      if (thread.in_block() == 0) a.squares[block] = sum;
    });
  }
};

}  // namespace tutti::trainer::cuda
