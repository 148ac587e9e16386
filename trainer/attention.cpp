#include "trainer/attention.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "trainer/gemm.h"
#include "trainer/numbers.h"

namespace tutti::trainer {
namespace {

constexpr std::size_t kBlock = 64;      // queries and keys of a block: with heads of 64 numbers all of it stays in the L1/L2 cache

// Where the numbers of one head of one sample lie; rows are `ld` (qkv) or `out_ld` (out) apart.
template <class T>
struct Head {
  const T *q, *k, *v;
  std::size_t ld, out_at, out_ld, log_at;
  std::uint64_t drop_key, drop_at;      // the place of (query 0, key 0) in the sample's dropout
};

template <class T>
Head<T> head_of(const AttentionShape& s, const Dropout& dropout, const T* qkv, std::size_t sample, std::size_t head) {
  const T* row = qkv + sample * s.context * s.qkv_width();
  const std::size_t shared = head / (s.heads / s.kv_heads);
  return {row + head * s.head_size,
          row + (s.heads + shared) * s.head_size,
          row + (s.heads + s.kv_heads + shared) * s.head_size,
          s.qkv_width(),
          sample * s.context * s.width() + head * s.head_size,
          s.width(),
          (sample * s.heads + head) * s.context,
          dropout.key_of_sample(sample),
          head * s.context * s.context};
}

struct Block {
  std::size_t first, count;
};
Block block_at(std::size_t first, std::size_t context) { return {first, std::min(kBlock, context - first)}; }

// Keys of `keys` that query i may see.
std::size_t visible(std::size_t i, Block keys) { return i < keys.first ? 0 : std::min(keys.count, i - keys.first + 1); }

template <class T>
void drop_row(const Dropout& dropout, const Head<T>& h, std::size_t context, std::size_t i, std::size_t first_key, std::size_t n, T* row) {
  const std::uint64_t at = h.drop_at + i * context + first_key;
  for (std::size_t j = 0; j < n; ++j) row[j] *= T(dropout.factor(h.drop_key, at + j));
}

// One block of queries against all keys that it may see. `p` is scratch of kBlock squared.
template <class T>
void forward_block(const AttentionShape& s, const Dropout& dropout, const Head<T>& h, Block queries, T* p, T* out, T* log_sums) {
  const T scale = T(1) / std::sqrt(T(s.head_size));
  T largest[kBlock], sum[kBlock] = {};
  std::fill_n(largest, kBlock, -std::numeric_limits<T>::infinity());
  T* const o = out + h.out_at + queries.first * h.out_ld;
  for (std::size_t first = 0; first < queries.first + queries.count; first += kBlock) {
    const Block keys = block_at(first, s.context);
    product<T>(queries.count, keys.count, s.head_size, scale, {h.q + queries.first * h.ld, h.ld},
               {h.k + first * h.ld, h.ld, Form::transposed}, T(0), p, kBlock, s.precision);
    for (std::size_t r = 0; r < queries.count; ++r) {
      T* row = p + r * kBlock;
      const std::size_t n = visible(queries.first + r, keys);
      if (n > 0) {
        const T top = max_of(n, largest[r], [&](std::size_t j) { return row[j]; });
        for (std::size_t j = 0; j < n; ++j) row[j] = exp_of(row[j] - top);
        const T shrink = first == 0 ? T(0) : exp_of(largest[r] - top);
        sum[r] = sum[r] * shrink + sum_of<T>(n, [&](std::size_t j) { return row[j]; });
        largest[r] = top;
        if (first > 0) for (std::size_t i = 0; i < s.head_size; ++i) o[r * h.out_ld + i] *= shrink;
        if (dropout.rate > 0) drop_row(dropout, h, s.context, queries.first + r, first, n, row);
      }
      std::fill(row + n, row + keys.count, T(0));
    }
    product<T>(queries.count, s.head_size, keys.count, T(1), {p, kBlock}, {h.v + first * h.ld, h.ld}, first == 0 ? T(0) : T(1), o, h.out_ld, s.precision);
  }
  for (std::size_t r = 0; r < queries.count; ++r) {
    for (std::size_t i = 0; i < s.head_size; ++i) o[r * h.out_ld + i] /= sum[r];
    log_sums[h.log_at + queries.first + r] = largest[r] + std::log(sum[r]);
  }
}

template <class T>
struct Scratch {
  std::vector<T> p = std::vector<T>(kBlock * kBlock), dp = p, dropped = p;
};

// A block of queries against a block of keys: adds to the gradients of both, and of the values. `along`: d_out times out, a row.
template <class T>
void backward_block(const AttentionShape& s, const Dropout& dropout, const Head<T>& h, Block queries, Block keys, const T* log_sums,
                    const T* along, const T* d_out, Scratch<T>& x, T* dq, T* dk, T* dv) {
  const T scale = T(1) / std::sqrt(T(s.head_size));
  const Matrix<T> q{h.q + queries.first * h.ld, h.ld}, k{h.k + keys.first * h.ld, h.ld}, v{h.v + keys.first * h.ld, h.ld};
  const Matrix<T> up{d_out + h.out_at + queries.first * h.out_ld, h.out_ld};
  const auto transposed = [](Matrix<T> a) { return Matrix<T>{a.data, a.ld, Form::transposed}; };
  product<T>(queries.count, keys.count, s.head_size, scale, q, transposed(k), T(0), x.p.data(), kBlock, s.precision);
  product<T>(queries.count, keys.count, s.head_size, T(1), up, transposed(v), T(0), x.dp.data(), kBlock, s.precision);
  for (std::size_t r = 0; r < queries.count; ++r) {
    const std::size_t i = queries.first + r, n = visible(i, keys);
    T *p = x.p.data() + r * kBlock, *dp = x.dp.data() + r * kBlock, *dropped = x.dropped.data() + r * kBlock;
    const T log_sum = log_sums[h.log_at + i], a = along[i];
    for (std::size_t j = 0; j < n; ++j) p[j] = exp_of(p[j] - log_sum);
    std::copy_n(p, n, dropped);
    if (dropout.rate > 0) {
      drop_row(dropout, h, s.context, i, keys.first, n, dropped);
      drop_row(dropout, h, s.context, i, keys.first, n, dp);
    }
    for (std::size_t j = 0; j < n; ++j) dp[j] = p[j] * (dp[j] - a) * scale;
    std::fill(dropped + n, dropped + keys.count, T(0));
    std::fill(dp + n, dp + keys.count, T(0));
  }
  const Matrix<T> p{x.dropped.data(), kBlock}, ds{x.dp.data(), kBlock};
  product<T>(keys.count, s.head_size, queries.count, T(1), transposed(p), up, T(1), dv + keys.first * h.ld, h.ld, s.precision);
  product<T>(keys.count, s.head_size, queries.count, T(1), transposed(ds), q, T(1), dk + keys.first * h.ld, h.ld, s.precision);
  product<T>(queries.count, s.head_size, keys.count, T(1), ds, k, T(1), dq + queries.first * h.ld, h.ld, s.precision);
}

}  // namespace

template <class T>
void attention_forward(Threads& threads, const AttentionShape& s, const Dropout& dropout, const T* qkv, T* out, T* log_sums) {
  threads.each(s.batch * s.heads, [&](std::size_t part) {
    const Head<T> h = head_of(s, dropout, qkv, part / s.heads, part % s.heads);
    std::vector<T> p(kBlock * kBlock);
    for (std::size_t first = 0; first < s.context; first += kBlock) {
      forward_block(s, dropout, h, block_at(first, s.context), p.data(), out, log_sums);
    }
  });
}

template <class T>
void attention_backward(Threads& threads, const AttentionShape& s, const Dropout& dropout, const T* qkv, const T* out,
                        const T* log_sums, const T* d_out, T* d_qkv) {
  const std::size_t group = s.heads / s.kv_heads;
  threads.ranges(s.batch * s.context, 1, [&](std::size_t begin, std::size_t end) {
    std::fill(d_qkv + begin * s.qkv_width(), d_qkv + end * s.qkv_width(), T(0));
  });
  threads.each(s.batch * s.kv_heads, [&](std::size_t part) {      // heads that share keys add to the same gradient
    Scratch<T> scratch;
    std::vector<T> along(s.context);
    for (std::size_t head = part % s.kv_heads * group; head < (part % s.kv_heads + 1) * group; ++head) {
      const Head<T> h = head_of(s, dropout, qkv, part / s.kv_heads, head);
      for (std::size_t i = 0; i < s.context; ++i) {
        const std::size_t at = h.out_at + i * h.out_ld;
        along[i] = sum_of<T>(s.head_size, [&](std::size_t d) { return d_out[at + d] * out[at + d]; });
      }
      for (std::size_t key = 0; key < s.context; key += kBlock) {
        for (std::size_t query = key; query < s.context; query += kBlock) {
          backward_block(s, dropout, h, block_at(query, s.context), block_at(key, s.context), log_sums, along.data(), d_out, scratch,
                         d_qkv + (h.q - qkv), d_qkv + (h.k - qkv), d_qkv + (h.v - qkv));
        }
      }
    }
  });
}

#define TUTTI_FOR(T)                                                                                                                 \
  template void attention_forward(Threads&, const AttentionShape&, const Dropout&, const T*, T*, T*);                               \
  template void attention_backward(Threads&, const AttentionShape&, const Dropout&, const T*, const T*, const T*, const T*, T*);
TUTTI_FOR(float)
TUTTI_FOR(double)
#undef TUTTI_FOR

}  // namespace tutti::trainer
