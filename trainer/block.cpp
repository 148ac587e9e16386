#include "trainer/block.h"

#include <algorithm>
#include <type_traits>

#include "trainer/linear.h"
#include "trainer/rope.h"

namespace tutti::trainer {
namespace {

enum Place : std::uint64_t { kProbabilities, kAttention, kMlp };     // of dropout in a block

AttentionShape attention_shape(const ModelConfig& c, BatchShape s, Precision precision) {
  return {s.samples, s.context, c.heads, c.kv_heads, c.head_size(), precision};
}

// What goes on in 16 bits.
template <class T>
void settle(Threads& threads, Precision precision, std::vector<T>& x) {
  if constexpr (std::is_same_v<T, float>) {
    if (precision == Precision::f32) return;
    threads.ranges(x.size(), 1 << 14, [&](std::size_t begin, std::size_t end) {
      round_to(precision, end - begin, x.data() + begin, x.data() + begin);
    });
  }
}

// y = x + dropout(branch w + b), where the branch has `inputs` numbers a row.
template <class T>
void join(Threads& threads, BatchShape shape, std::size_t inputs, std::size_t width, const Dropout& dropout, const T* x, const T* branch,
          const T* w, const T* b, T* y, Precision precision) {
  if (dropout.rate == 0) return linear_forward(threads, shape.rows(), inputs, width, branch, w, b, y, x, precision);
  linear_forward<T>(threads, shape.rows(), inputs, width, branch, w, b, y, nullptr, precision);
  drop(threads, dropout, shape.samples, shape.context * width, y);
  threads.ranges(shape.rows() * width, 1 << 12, [&](std::size_t begin, std::size_t end) {
    for (std::size_t i = begin; i < end; ++i) y[i] += x[i];
  });
}

// The gradient that flows into a branch: dy itself, or in `room` with dropout applied.
template <class T>
const T* into_branch(Threads& threads, BatchShape shape, std::size_t width, const Dropout& dropout, const T* dy, std::vector<T>& room) {
  if (dropout.rate == 0) return dy;
  std::copy_n(dy, shape.rows() * width, room.data());
  drop(threads, dropout, shape.samples, shape.context * width, room.data());
  return room.data();
}

}  // namespace

template <class T>
BlockActivations<T>::BlockActivations(const ModelConfig& c, BatchShape s)
    : norm1(s.rows() * c.width), qkv(s.rows() * c.qkv_width()), log_sums(s.rows() * c.heads), attention(s.rows() * c.width),
      middle(s.rows() * c.width), norm2(s.rows() * c.width), up(s.rows() * c.hidden * inputs_of(c.activation)),
      active(s.rows() * c.hidden), mean1(s.rows()), scale1(s.rows()), mean2(s.rows()), scale2(s.rows()) {}

template <class T>
BlockScratch<T>::BlockScratch(const ModelConfig& c, BatchShape s)
    : branch(s.rows() * c.width), width(s.rows() * c.width), qkv(s.rows() * c.qkv_width()),
      up(s.rows() * c.hidden * inputs_of(c.activation)), active(s.rows() * c.hidden) {}

template <class T>
void block_forward(Threads& threads, const ModelConfig& c, BatchShape s, const Dropout& dropout, const BlockTensors<const T>& w, const T* x,
                   BlockActivations<T>& a, T* out, Precision precision) {
  const std::size_t rows = s.rows(), up = c.hidden * inputs_of(c.activation);
  norm_forward(threads, c.norm, rows, c.width, x, w.norm1, w.norm1_bias, a.norm1.data(), a.mean1.data(), a.scale1.data());
  linear_forward<T>(threads, rows, c.width, c.qkv_width(), a.norm1.data(), w.qkv, w.qkv_bias, a.qkv.data(), nullptr, precision);
  if (c.position == PositionKind::rope) {
    rope(threads, Turn::forward, rows, s.context, c.heads + c.kv_heads, c.head_size(), a.qkv.data(), c.qkv_width());
  }
  settle(threads, precision, a.qkv);
  attention_forward(threads, attention_shape(c, s, precision), dropout.at(kProbabilities), a.qkv.data(), a.attention.data(), a.log_sums.data());
  settle(threads, precision, a.attention);
  join(threads, s, c.width, c.width, dropout.at(kAttention), x, a.attention.data(), w.joint, w.joint_bias, a.middle.data(), precision);
  norm_forward(threads, c.norm, rows, c.width, a.middle.data(), w.norm2, w.norm2_bias, a.norm2.data(), a.mean2.data(), a.scale2.data());
  linear_forward<T>(threads, rows, c.width, up, a.norm2.data(), w.up, w.up_bias, a.up.data(), nullptr, precision);
  settle(threads, precision, a.up);
  activation_forward(threads, c.activation, rows, c.hidden, a.up.data(), a.active.data());
  join(threads, s, c.hidden, c.width, dropout.at(kMlp), a.middle.data(), a.active.data(), w.down, w.down_bias, out, precision);
}

template <class T>
void block_backward(Threads& threads, const ModelConfig& c, BatchShape s, const Dropout& dropout, const BlockTensors<const T>& w, const T* x,
                    const BlockActivations<T>& a, BlockScratch<T>& t, T* dx, const BlockTensors<T>& d, T beta, Precision precision) {
  const std::size_t rows = s.rows(), up = c.hidden * inputs_of(c.activation);
  const T* branch = into_branch(threads, s, c.width, dropout.at(kMlp), dx, t.branch);
  linear_backward(threads, rows, c.hidden, c.width, a.active.data(), w.down, branch, t.active.data(), d.down, d.down_bias, beta, precision);
  activation_backward(threads, c.activation, rows, c.hidden, a.up.data(), t.active.data(), t.up.data());
  linear_backward(threads, rows, c.width, up, a.norm2.data(), w.up, t.up.data(), t.width.data(), d.up, d.up_bias, beta, precision);
  norm_backward(threads, c.norm, rows, c.width, a.middle.data(), w.norm2, a.mean2.data(), a.scale2.data(), t.width.data(), dx, d.norm2,
                d.norm2_bias, beta);
  branch = into_branch(threads, s, c.width, dropout.at(kAttention), dx, t.branch);
  linear_backward(threads, rows, c.width, c.width, a.attention.data(), w.joint, branch, t.width.data(), d.joint, d.joint_bias, beta, precision);
  attention_backward(threads, attention_shape(c, s, precision), dropout.at(kProbabilities), a.qkv.data(), a.attention.data(), a.log_sums.data(),
                     t.width.data(), t.qkv.data());
  if (c.position == PositionKind::rope) {
    rope(threads, Turn::backward, rows, s.context, c.heads + c.kv_heads, c.head_size(), t.qkv.data(), c.qkv_width());
  }
  linear_backward(threads, rows, c.width, c.qkv_width(), a.norm1.data(), w.qkv, t.qkv.data(), t.width.data(), d.qkv, d.qkv_bias, beta, precision);
  norm_backward(threads, c.norm, rows, c.width, x, w.norm1, a.mean1.data(), a.scale1.data(), t.width.data(), dx, d.norm1, d.norm1_bias, beta);
}

void PackedActivations::keep(Precision precision, const BlockActivations<float>& a) {
  numbers_.resize(a.norm1.size() + a.qkv.size() + a.attention.size() + a.norm2.size() + a.up.size() + a.active.size());
  std::uint16_t* out = numbers_.data();
  for (const auto* part : {&a.norm1, &a.qkv, &a.attention, &a.norm2, &a.up, &a.active}) {
    pack(precision, part->size(), part->data(), out);
    out += part->size();
  }
  middle_ = a.middle, log_sums_ = a.log_sums, mean1_ = a.mean1, scale1_ = a.scale1, mean2_ = a.mean2, scale2_ = a.scale2;
}

void PackedActivations::restore(Precision precision, BlockActivations<float>& a) const {
  const std::uint16_t* in = numbers_.data();
  for (auto* part : {&a.norm1, &a.qkv, &a.attention, &a.norm2, &a.up, &a.active}) {
    unpack(precision, part->size(), in, part->data());
    in += part->size();
  }
  a.middle = middle_, a.log_sums = log_sums_, a.mean1 = mean1_, a.scale1 = scale1_, a.mean2 = mean2_, a.scale2 = scale2_;
}

std::size_t PackedActivations::bytes() const {
  return numbers_.size() * sizeof(std::uint16_t) + (middle_.size() + log_sums_.size() + 2 * mean1_.size() + 2 * mean2_.size()) * sizeof(float);
}

#define TUTTI_FOR(T)                                                                                                                   \
  template struct BlockActivations<T>;                                                                                                 \
  template struct BlockScratch<T>;                                                                                                     \
  template void block_forward(Threads&, const ModelConfig&, BatchShape, const Dropout&, const BlockTensors<const T>&, const T*,        \
                              BlockActivations<T>&, T*, Precision);                                                                               \
  template void block_backward(Threads&, const ModelConfig&, BatchShape, const Dropout&, const BlockTensors<const T>&, const T*,       \
                               const BlockActivations<T>&, BlockScratch<T>&, T*, const BlockTensors<T>&, T, Precision);
TUTTI_FOR(float)
TUTTI_FOR(double)
#undef TUTTI_FOR

}  // namespace tutti::trainer
