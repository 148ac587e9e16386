#pragma once
// Kernels whose threads each do numbers of their own.
#include <cmath>

#include "trainer/activation.h"
#include "trainer/cuda/thread.h"
#include "trainer/dropout.h"
#include "trainer/embedding.h"
#include "trainer/numbers.h"
#include "trainer/optimizer_step.h"
#include "trainer/precision.h"
#include "trainer/rope.h"

namespace tutti::trainer::cuda {

TUTTI_BODY float rounded(Precision precision, float x) {
  return precision == Precision::bf16 ? as_bf16(x) : precision == Precision::f16 ? as_f16(x) : x;
}

// As activation.cpp has them.
TUTTI_BODY float gelu_tanh(float x) { return tanh_of(0.79788456f * (x + 0.044715f * x * x * x)); }
TUTTI_BODY float gelu(float x) { return 0.5f * x * (1 + gelu_tanh(x)); }
TUTTI_BODY float gelu_slope(float x) {
  const float t = gelu_tanh(x), slope = 0.79788456f * (1 + 3 * 0.044715f * x * x);
  return 0.5f * (1 + t + x * (1 - t * t) * slope);
}
TUTTI_BODY float swiglu(float gate, float x) { return gate * sigmoid_of(gate) * x; }

template <class Thread, class F>
TUTTI_BODY void each(Thread& thread, std::size_t n, F f) {
  for (std::size_t i = thread.index(); i < n; i += thread.count()) f(i);
}

struct Drop {
  struct Arguments {
    Dropout dropout;
    std::size_t samples, length;
    float* x;
  };
  using Shared = Nothing;
  template <class Thread>
  TUTTI_BODY void operator()(const Arguments& a, Thread& thread, Shared&) const {
    each(thread, a.samples * a.length, [&](std::size_t i) { a.x[i] *= a.dropout.factor(a.dropout.key_of_sample(i / a.length), i % a.length); });
  }
};

struct Add {      // y += x
  struct Arguments {
    std::size_t n;
    const float* x;
    float* y;
  };
  using Shared = Nothing;
  template <class Thread>
  TUTTI_BODY void operator()(const Arguments& a, Thread& thread, Shared&) const {
    each(thread, a.n, [&](std::size_t i) { a.y[i] += a.x[i]; });
  }
};

struct Round {
  struct Arguments {
    Precision precision;
    std::size_t n;
    float* x;
  };
  using Shared = Nothing;
  template <class Thread>
  TUTTI_BODY void operator()(const Arguments& a, Thread& thread, Shared&) const {
    each(thread, a.n, [&](std::size_t i) { a.x[i] = rounded(a.precision, a.x[i]); });
  }
};

struct Narrow {
  struct Arguments {
    Precision precision;
    std::size_t n;
    const float* x;
    std::uint16_t* out;
  };
  using Shared = Nothing;
  template <class Thread>
  TUTTI_BODY void operator()(const Arguments& a, Thread& thread, Shared&) const {
    const bool brain = a.precision == Precision::bf16;
    each(thread, a.n, [&](std::size_t i) { a.out[i] = brain ? bf16_bits(as_bf16(a.x[i])) : f16_bits(as_f16(a.x[i])); });
  }
};

struct Widen {
  struct Arguments {
    Precision precision;
    std::size_t n;
    const std::uint16_t* x;
    float* out;
  };
  using Shared = Nothing;
  template <class Thread>
  TUTTI_BODY void operator()(const Arguments& a, Thread& thread, Shared&) const {
    const bool brain = a.precision == Precision::bf16;
    each(thread, a.n, [&](std::size_t i) { a.out[i] = brain ? from_bf16(a.x[i]) : from_f16(a.x[i]); });
  }
};

struct ChangeWeights {      // AdamW
  struct Arguments {
    std::size_t n;
    AdamWStep step;
    const float* gradient;
    float *first, *second, *weights;
  };
  using Shared = Nothing;
  template <class Thread>
  TUTTI_BODY void operator()(const Arguments& a, Thread& thread, Shared&) const {
    const AdamWStep& f = a.step;
    each(thread, a.n, [&](std::size_t i) {
      const float g = a.gradient[i] * f.scale;
      const float m = f.b1 * a.first[i] + (1 - f.b1) * g, v = f.b2 * a.second[i] + (1 - f.b2) * g * g;
      a.first[i] = m;
      a.second[i] = v;
      a.weights[i] = f.keep * a.weights[i] - f.rate1 * m / (sqrtf(v) * f.root2 + f.epsilon);
    });
  }
};

struct StartRows {      // what a product is added to: each row is `onto` + b, where there are such
  struct Arguments {
    std::size_t rows, width;
    const float *onto, *b;
    float* y;
  };
  using Shared = Nothing;
  template <class Thread>
  TUTTI_BODY void operator()(const Arguments& a, Thread& thread, Shared&) const {
    each(thread, a.rows * a.width, [&](std::size_t i) { a.y[i] = (a.onto ? a.onto[i] : 0.0f) + (a.b ? a.b[i % a.width] : 0.0f); });
  }
};

struct Activate {
  struct Arguments {
    ActivationKind kind;
    std::size_t rows, width;
    const float* x;
    float* y;
  };
  using Shared = Nothing;
  template <class Thread>
  TUTTI_BODY void operator()(const Arguments& a, Thread& thread, Shared&) const {
    each(thread, a.rows * a.width, [&](std::size_t i) {
      const float* in = a.x + i / a.width * a.width * inputs_of(a.kind) + i % a.width;
      a.y[i] = a.kind == ActivationKind::gelu ? gelu(in[0]) : swiglu(in[0], in[a.width]);
    });
  }
};

struct ActivateBack {
  struct Arguments {
    ActivationKind kind;
    std::size_t rows, width;
    const float *x, *dy;
    float* dx;
  };
  using Shared = Nothing;
  template <class Thread>
  TUTTI_BODY void operator()(const Arguments& a, Thread& thread, Shared&) const {
    each(thread, a.rows * a.width, [&](std::size_t i) {
      const std::size_t at = i / a.width * a.width * inputs_of(a.kind) + i % a.width;
      if (a.kind == ActivationKind::gelu) {
        a.dx[at] = a.dy[i] * gelu_slope(a.x[at]);
      } else {
        const float gate = a.x[at], s = sigmoid_of(gate);
        a.dx[at + a.width] = a.dy[i] * gate * s;
        a.dx[at] = a.dy[i] * a.x[at + a.width] * s * (1 + gate * (1 - s));
      }
    });
  }
};

struct Rotate {
  struct Arguments {
    Turn turn;
    std::size_t rows, context, heads, size, stride;
    float* x;
  };
  using Shared = Nothing;
  template <class Thread>
  TUTTI_BODY void operator()(const Arguments& a, Thread& thread, Shared&) const {
    const std::size_t half = a.size / 2;
    each(thread, a.rows * half, [&](std::size_t at) {
      const std::size_t r = at / half, i = at % half;
      const double angle = double(r % a.context) * pow(10000.0, -2.0 * double(i) / double(a.size));
      const float cosine = float(cos(angle)), sine = float(a.turn == Turn::forward ? sin(angle) : -sin(angle));
      for (std::size_t head = 0; head < a.heads; ++head) {
        float* low = a.x + r * a.stride + head * a.size + i;
        const float x = low[0], y = low[half];
        low[0] = x * cosine - y * sine;
        low[half] = y * cosine + x * sine;
      }
    });
  }
};

struct Embed {
  struct Arguments {
    std::size_t rows, context, width;
    const Token* tokens;
    const float *table, *positions;
    float* x;
  };
  using Shared = Nothing;
  template <class Thread>
  TUTTI_BODY void operator()(const Arguments& a, Thread& thread, Shared&) const {
    each(thread, a.rows * a.width, [&](std::size_t at) {
      const std::size_t r = at / a.width, i = at % a.width;
      a.x[at] = a.table[std::size_t(a.tokens[r]) * a.width + i] + (a.positions ? a.positions[r % a.context * a.width + i] : 0.0f);
    });
  }
};

struct EmbedPositionsBack {
  struct Arguments {
    std::size_t batch, context, width;
    const float* dx;
    float* d_positions;
    float beta;
  };
  using Shared = Nothing;
  template <class Thread>
  TUTTI_BODY void operator()(const Arguments& a, Thread& thread, Shared&) const {
    each(thread, a.context * a.width, [&](std::size_t i) {
      float sum = 0;
      for (std::size_t b = 0; b < a.batch; ++b) sum += a.dx[b * a.context * a.width + i];
      a.d_positions[i] = sum + (a.beta == 0 ? 0.0f : a.beta * a.d_positions[i]);
    });
  }
};

}  // namespace tutti::trainer::cuda
