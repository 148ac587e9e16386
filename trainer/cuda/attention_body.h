#pragma once
// Causal attention (attention.h) in tiles of queries by keys that stay on chip. Forward: a block of threads has one tile of queries and
// goes over the keys with a running softmax. Backward, with the probabilities made again from the forward pass's log_sums: one kernel
// whose blocks have a tile of keys and go over the queries, for the gradients of keys and values, and one the other way round, for those of
// queries. So every number is written by one block, and sums are in a fixed order. The arithmetic is f32; what the precision rounds is
// rounded first.
#include "trainer/attention.h"
#include "trainer/cuda/element_body.h"

namespace tutti::trainer::cuda {

inline constexpr std::size_t kLargestHead = 128;
inline constexpr std::size_t kTileThreads = 128;

// Geometry for heads of up to `size` numbers: of a tile's numbers a thread has those at (down + kDown i, across + kAcross j).
template <std::size_t size>
struct Tile {
  static constexpr std::size_t kHead = size, kSide = size <= 64 ? 32 : 16;
  static constexpr std::size_t kAcross = 8, kDown = kTileThreads / kAcross;
  static constexpr std::size_t kEach = kTileThreads / kSide;        // threads of a row of scores
  using Rows = float[kSide][kHead + 1];                             // one more: columns then lie in different banks
  using Scores = float[kSide][kSide + 1];
  struct Part {                                                     // of a tile of rows, in a thread's registers
    float at[kSide / kDown][kHead / kAcross];
  };
};

struct AttentionArguments {
  AttentionShape shape;
  Dropout dropout;
  const float *qkv, *out, *log_sums, *d_out;
  const float* along;       // d_out times out: [batch][heads][context], as log_sums
  float *o, *sums;          // forward's results
  float* d_qkv;
};

// Of one head of a sample: where its rows begin.
struct HeadAt {
  std::size_t q, k, v, out, log, drop_at;
  std::uint64_t drop_key;
};
TUTTI_BODY HeadAt head_at(const AttentionArguments& a, std::size_t sample, std::size_t head) {
  const AttentionShape& s = a.shape;
  const std::size_t row = sample * s.context * s.qkv_width(), shared = head / (s.heads / s.kv_heads);
  return {row + head * s.head_size,
          row + (s.heads + shared) * s.head_size,
          row + (s.heads + s.kv_heads + shared) * s.head_size,
          sample * s.context * s.width() + head * s.head_size,
          (sample * s.heads + head) * s.context,
          head * s.context * s.context,
          a.dropout.key_of_sample(sample)};
}

// Rows [first, first + kSide) of a head, 0 beyond the context and beyond the head's size.
template <class T, class Thread>
TUTTI_BODY void load(Thread& thread, typename T::Rows& to, const AttentionShape& s, const float* from, std::size_t stride, std::size_t first) {
  for (std::size_t i = thread.in_block(); i < T::kSide * T::kHead; i += kTileThreads) {
    const std::size_t r = i / T::kHead, c = i % T::kHead;
    to[r][c] = first + r < s.context && c < s.head_size ? rounded(s.precision, from[(first + r) * stride + c]) : 0.0f;
  }
}

template <class T, class Thread>
TUTTI_BODY void store(Thread& thread, const typename T::Part& part, const AttentionShape& s, float* to, std::size_t stride, std::size_t first) {
  const std::size_t down = thread.in_block() / T::kAcross, across = thread.in_block() % T::kAcross;
  for (std::size_t i = 0; i < T::kSide / T::kDown; ++i) {
    for (std::size_t j = 0; j < T::kHead / T::kAcross; ++j) {
      const std::size_t r = first + down + T::kDown * i, c = across + T::kAcross * j;
      if (r < s.context && c < s.head_size) to[r * stride + c] = part.at[i][j];
    }
  }
}

// out[r][c] = scale times row r of a times row c of b.
template <class T, class Thread>
TUTTI_BODY void dots(Thread& thread, const typename T::Rows& a, const typename T::Rows& b, float scale, typename T::Scores& out) {
  constexpr std::size_t kRows = T::kSide / T::kDown, kCols = T::kSide / T::kAcross;
  const std::size_t down = thread.in_block() / T::kAcross, across = thread.in_block() % T::kAcross;
  float sum[kRows][kCols] = {};
  for (std::size_t d = 0; d < T::kHead; ++d) {
    for (std::size_t i = 0; i < kRows; ++i) {
      for (std::size_t j = 0; j < kCols; ++j) sum[i][j] += a[down + T::kDown * i][d] * b[across + T::kAcross * j][d];
    }
  }
  for (std::size_t i = 0; i < kRows; ++i) {
    for (std::size_t j = 0; j < kCols; ++j) out[down + T::kDown * i][across + T::kAcross * j] = sum[i][j] * scale;
  }
}

// part += p x, or p transposed times x.
template <class T, bool transposed, class Thread>
TUTTI_BODY void add_product(Thread& thread, typename T::Part& part, const typename T::Scores& p, const typename T::Rows& x) {
  const std::size_t down = thread.in_block() / T::kAcross, across = thread.in_block() % T::kAcross;
  for (std::size_t k = 0; k < T::kSide; ++k) {
    for (std::size_t i = 0; i < T::kSide / T::kDown; ++i) {
      const std::size_t r = down + T::kDown * i;
      const float weight = transposed ? p[k][r] : p[r][k];
      for (std::size_t j = 0; j < T::kHead / T::kAcross; ++j) part.at[i][j] += weight * x[k][across + T::kAcross * j];
    }
  }
}

TUTTI_BODY bool sees(const AttentionShape& s, std::size_t query, std::size_t key) { return query < s.context && key <= query; }

template <std::size_t size>
struct AttentionForward {
  using T = Tile<size>;
  static constexpr std::size_t kThreads = kTileThreads;
  using Arguments = AttentionArguments;
  struct Shared {
    typename T::Rows q, k, v;
    typename T::Scores p;
    float parts[T::kSide][T::kEach];
    float largest[T::kSide], sum[T::kSide], shrink[T::kSide];
  };

  // Scores become probabilities relative to the largest score so far; `shrink` is what the earlier ones are multiplied by.
  template <class Thread>
  static TUTTI_BODY void soften(const Arguments& a, Thread& thread, Shared& x, const HeadAt& h, std::size_t query, std::size_t key) {
    const std::size_t r = thread.in_block() / T::kEach, part = thread.in_block() % T::kEach;
    const std::size_t i = query + r;
    float top = -INFINITY;
    for (std::size_t j = part; j < T::kSide; j += T::kEach) {
      if (sees(a.shape, i, key + j)) top = x.p[r][j] > top ? x.p[r][j] : top;
    }
    x.parts[r][part] = top;
    thread.sync();
    top = x.largest[r];
    for (std::size_t k = 0; k < T::kEach; ++k) top = x.parts[r][k] > top ? x.parts[r][k] : top;
    thread.sync();
    float sum = 0;
    for (std::size_t j = part; j < T::kSide; j += T::kEach) {
      float p = 0;
      if (sees(a.shape, i, key + j)) {
        p = exp_of(x.p[r][j] - top);
        sum += p;
        if (a.dropout.rate > 0) p *= a.dropout.factor(h.drop_key, h.drop_at + i * a.shape.context + key + j);
      }
      x.p[r][j] = rounded(a.shape.precision, p);
    }
    x.parts[r][part] = sum;
    thread.sync();
    if (part != 0) return;
    x.shrink[r] = key == 0 ? 0.0f : exp_of(x.largest[r] - top);
    sum = key == 0 ? 0.0f : x.sum[r] * x.shrink[r];
    for (std::size_t k = 0; k < T::kEach; ++k) sum += x.parts[r][k];
    x.sum[r] = sum;
    x.largest[r] = top;
  }

  template <class Thread>
  TUTTI_BODY void operator()(const Arguments& a, Thread& thread, Shared& x) const {
    const AttentionShape& s = a.shape;
    const std::size_t tiles = (s.context + T::kSide - 1) / T::kSide, query = thread.block() % tiles * T::kSide;
    const std::size_t head = thread.block() / tiles % s.heads, sample = thread.block() / tiles / s.heads;
    const HeadAt h = head_at(a, sample, head);
    const std::size_t down = thread.in_block() / T::kAcross;
    load<T>(thread, x.q, s, a.qkv + h.q, s.qkv_width(), query);
    if (thread.in_block() < T::kSide) x.largest[thread.in_block()] = -INFINITY;
    typename T::Part o = {};
    for (std::size_t key = 0; key <= query; key += T::kSide) {
      load<T>(thread, x.k, s, a.qkv + h.k, s.qkv_width(), key);
      load<T>(thread, x.v, s, a.qkv + h.v, s.qkv_width(), key);
      thread.sync();
      dots<T>(thread, x.q, x.k, 1 / sqrtf(float(s.head_size)), x.p);
      thread.sync();
      soften(a, thread, x, h, query, key);
      thread.sync();
      for (std::size_t i = 0; i < T::kSide / T::kDown; ++i) {
        for (float& number : o.at[i]) number *= x.shrink[down + T::kDown * i];
      }
      add_product<T, false>(thread, o, x.p, x.v);
      thread.sync();
    }
    for (std::size_t i = 0; i < T::kSide / T::kDown; ++i) {
      for (float& number : o.at[i]) number /= x.sum[down + T::kDown * i];
    }
    store<T>(thread, o, s, a.o + h.out, s.width(), query);
    const std::size_t r = thread.in_block();
    if (r < T::kSide && query + r < s.context) a.sums[h.log + query + r] = x.largest[r] + logf(x.sum[r]);
  }
};

struct AlongRows {      // for each head and row d_out times out
  using Arguments = AttentionArguments;
  using Shared = Nothing;
  template <class Thread>
  TUTTI_BODY void operator()(const Arguments& a, Thread& thread, Shared&) const {
    const AttentionShape& s = a.shape;
    each(thread, s.batch * s.heads * s.context, [&](std::size_t at) {
      const std::size_t row = at / s.context / s.heads * s.context + at % s.context, head = at / s.context % s.heads;
      const std::size_t first = row * s.width() + head * s.head_size;
      float sum = 0;
      for (std::size_t i = 0; i < s.head_size; ++i) sum += a.d_out[first + i] * a.out[first + i];
      a.sums[at] = sum;
    });
  }
};

// What both backward kernels keep on chip for a tile of queries and one of keys.
template <std::size_t size>
struct PairTiles {
  typename Tile<size>::Rows q, k, v, up;
  typename Tile<size>::Scores p, ds;      // the probabilities, dropped; the gradients of the scores
};

template <std::size_t size, class Thread>
TUTTI_BODY void probabilities(const AttentionArguments& a, Thread& thread, PairTiles<size>& x, const HeadAt& h, std::size_t query, std::size_t key) {
  using T = Tile<size>;
  const AttentionShape& s = a.shape;
  const float scale = 1 / sqrtf(float(s.head_size));
  dots<T>(thread, x.q, x.k, scale, x.p);
  dots<T>(thread, x.up, x.v, 1.0f, x.ds);
  thread.sync();
  for (std::size_t at = thread.in_block(); at < T::kSide * T::kSide; at += kTileThreads) {
    const std::size_t r = at / T::kSide, c = at % T::kSide, i = query + r;
    float p = 0, dropped = 0, ds = 0;
    if (sees(s, i, key + c)) {
      const float factor = a.dropout.rate > 0 ? a.dropout.factor(h.drop_key, h.drop_at + i * s.context + key + c) : 1.0f;
      p = exp_of(x.p[r][c] - a.log_sums[h.log + i]);
      dropped = p * factor;
      ds = p * (x.ds[r][c] * factor - a.along[h.log + i]) * scale;
    }
    x.p[r][c] = rounded(s.precision, dropped);
    x.ds[r][c] = rounded(s.precision, ds);
  }
  thread.sync();
}

template <std::size_t size>
struct AttentionKeysBack {
  using T = Tile<size>;
  static constexpr std::size_t kThreads = kTileThreads;
  using Arguments = AttentionArguments;
  using Shared = PairTiles<size>;
  template <class Thread>
  TUTTI_BODY void operator()(const Arguments& a, Thread& thread, Shared& x) const {
    const AttentionShape& s = a.shape;
    const std::size_t tiles = (s.context + T::kSide - 1) / T::kSide, key = thread.block() % tiles * T::kSide;
    const std::size_t shared = thread.block() / tiles % s.kv_heads, sample = thread.block() / tiles / s.kv_heads;
    const std::size_t group = s.heads / s.kv_heads;
    const HeadAt first = head_at(a, sample, shared * group);
    load<T>(thread, x.k, s, a.qkv + first.k, s.qkv_width(), key);
    load<T>(thread, x.v, s, a.qkv + first.v, s.qkv_width(), key);
    typename T::Part dk = {}, dv = {};
    for (std::size_t head = shared * group; head < (shared + 1) * group; ++head) {
      const HeadAt h = head_at(a, sample, head);
      for (std::size_t query = key; query < s.context; query += T::kSide) {
        load<T>(thread, x.q, s, a.qkv + h.q, s.qkv_width(), query);
        load<T>(thread, x.up, s, a.d_out + h.out, s.width(), query);
        thread.sync();
        probabilities<size>(a, thread, x, h, query, key);
        add_product<T, true>(thread, dv, x.p, x.up);
        add_product<T, true>(thread, dk, x.ds, x.q);
        thread.sync();
      }
    }
    store<T>(thread, dk, s, a.d_qkv + first.k, s.qkv_width(), key);
    store<T>(thread, dv, s, a.d_qkv + first.v, s.qkv_width(), key);
  }
};

template <std::size_t size>
struct AttentionQueriesBack {
  using T = Tile<size>;
  static constexpr std::size_t kThreads = kTileThreads;
  using Arguments = AttentionArguments;
  using Shared = PairTiles<size>;
  template <class Thread>
  TUTTI_BODY void operator()(const Arguments& a, Thread& thread, Shared& x) const {
    const AttentionShape& s = a.shape;
    const std::size_t tiles = (s.context + T::kSide - 1) / T::kSide, query = thread.block() % tiles * T::kSide;
    const std::size_t head = thread.block() / tiles % s.heads, sample = thread.block() / tiles / s.heads;
    const HeadAt h = head_at(a, sample, head);
    load<T>(thread, x.q, s, a.qkv + h.q, s.qkv_width(), query);
    load<T>(thread, x.up, s, a.d_out + h.out, s.width(), query);
    typename T::Part dq = {};
    for (std::size_t key = 0; key <= query; key += T::kSide) {
      load<T>(thread, x.k, s, a.qkv + h.k, s.qkv_width(), key);
      load<T>(thread, x.v, s, a.qkv + h.v, s.qkv_width(), key);
      thread.sync();
      probabilities<size>(a, thread, x, h, query, key);
      add_product<T, false>(thread, dq, x.ds, x.k);
      thread.sync();
    }
    store<T>(thread, dq, s, a.d_qkv + h.q, s.qkv_width(), query);
  }
};

}  // namespace tutti::trainer::cuda
