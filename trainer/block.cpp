#include "trainer/block.h"

namespace tutti::trainer {
namespace {

enum Place : std::uint64_t { kProbabilities, kAttention, kMlp };     // of dropout in a block

AttentionShape attention_shape(const ModelConfig& c, BatchShape s, Precision precision) {
  return {s.samples, s.context, c.heads, c.kv_heads, c.head_size(), precision};
}

// What goes on in 16 bits.
template <class T>
void settle(Backend<T>& backend, Precision precision, Array<T>& x) {
  if (precision != Precision::f32) backend.round(precision, x.size(), x.data());
}

// y = x + dropout(branch w + b), where the branch has `inputs` numbers a row.
template <class T>
void join(Backend<T>& backend, BatchShape shape, std::size_t inputs, std::size_t width, const Dropout& dropout, const T* x, const T* branch,
          const T* w, const T* b, T* y, Precision precision) {
  const bool drops = dropout.rate > 0;
  backend.linear_forward(shape.rows(), inputs, width, branch, w, b, y, drops ? nullptr : x, precision);
  if (!drops) return;
  backend.drop(dropout, shape.samples, shape.context * width, y);
  backend.add(shape.rows() * width, x, y);
}

// The gradient that flows into a branch: dy itself, or in `room` with dropout applied.
template <class T>
const T* into_branch(Backend<T>& backend, BatchShape shape, std::size_t width, const Dropout& dropout, const T* dy, Array<T>& room) {
  if (dropout.rate == 0) return dy;
  backend.copy(room.data(), dy, shape.rows() * width * sizeof(T));
  backend.drop(dropout, shape.samples, shape.context * width, room.data());
  return room.data();
}

}  // namespace

template <class T>
BlockActivations<T>::BlockActivations(Device& device, const ModelConfig& c, BatchShape s)
    : norm1(device, s.rows() * c.width), qkv(device, s.rows() * c.qkv_width()), log_sums(device, s.rows() * c.heads),
      attention(device, s.rows() * c.width), middle(device, s.rows() * c.width), norm2(device, s.rows() * c.width),
      up(device, s.rows() * c.hidden * inputs_of(c.activation)), active(device, s.rows() * c.hidden), mean1(device, s.rows()),
      scale1(device, s.rows()), mean2(device, s.rows()), scale2(device, s.rows()) {}

template <class T>
std::size_t BlockActivations<T>::bytes() const {
  return norm1.bytes() + qkv.bytes() + log_sums.bytes() + attention.bytes() + middle.bytes() + norm2.bytes() + up.bytes() + active.bytes() +
         4 * mean1.bytes();
}

template <class T>
BlockScratch<T>::BlockScratch(Device& device, const ModelConfig& c, BatchShape s)
    : branch(device, s.rows() * c.width), width(device, s.rows() * c.width), qkv(device, s.rows() * c.qkv_width()),
      up(device, s.rows() * c.hidden * inputs_of(c.activation)), active(device, s.rows() * c.hidden) {}

template <class T>
void block_forward(Backend<T>& backend, const ModelConfig& c, BatchShape s, const Dropout& dropout, const BlockTensors<const T>& w, const T* x,
                   BlockActivations<T>& a, T* out, Precision precision) {
  const std::size_t rows = s.rows(), up = c.hidden * inputs_of(c.activation);
  backend.norm_forward(c.norm, rows, c.width, x, w.norm1, w.norm1_bias, a.norm1.data(), a.mean1.data(), a.scale1.data());
  backend.linear_forward(rows, c.width, c.qkv_width(), a.norm1.data(), w.qkv, w.qkv_bias, a.qkv.data(), nullptr, precision);
  if (c.position == PositionKind::rope) {
    backend.rope(Turn::forward, rows, s.context, c.heads + c.kv_heads, c.head_size(), a.qkv.data(), c.qkv_width());
  }
  settle(backend, precision, a.qkv);
  backend.attention_forward(attention_shape(c, s, precision), dropout.at(kProbabilities), a.qkv.data(), a.attention.data(), a.log_sums.data());
  settle(backend, precision, a.attention);
  join(backend, s, c.width, c.width, dropout.at(kAttention), x, a.attention.data(), w.joint, w.joint_bias, a.middle.data(), precision);
  backend.norm_forward(c.norm, rows, c.width, a.middle.data(), w.norm2, w.norm2_bias, a.norm2.data(), a.mean2.data(), a.scale2.data());
  backend.linear_forward(rows, c.width, up, a.norm2.data(), w.up, w.up_bias, a.up.data(), nullptr, precision);
  settle(backend, precision, a.up);
  backend.activation_forward(c.activation, rows, c.hidden, a.up.data(), a.active.data());
  join(backend, s, c.hidden, c.width, dropout.at(kMlp), a.middle.data(), a.active.data(), w.down, w.down_bias, out, precision);
}

template <class T>
void mlp_backward(Backend<T>& backend, const ModelConfig& c, BatchShape s, const Dropout& dropout, const BlockTensors<const T>& w,
                  const BlockActivations<T>& a, BlockScratch<T>& t, T* dx, const BlockTensors<T>& d, T beta,
                  Precision precision, const FinishedFrom<T>& finished) {
  const std::size_t rows = s.rows(), up = c.hidden * inputs_of(c.activation);
  const T* branch = into_branch(backend, s, c.width, dropout.at(kMlp), dx, t.branch);
  backend.linear_backward(rows, c.hidden, c.width, a.active.data(), w.down, branch, t.active.data(), d.down, d.down_bias, beta, precision);
  finished(d.down);
  backend.activation_backward(c.activation, rows, c.hidden, a.up.data(), t.active.data(), t.up.data());
  backend.linear_backward(rows, c.width, up, a.norm2.data(), w.up, t.up.data(), t.width.data(), d.up, d.up_bias, beta, precision);
  backend.norm_backward(c.norm, rows, c.width, a.middle.data(), w.norm2, a.mean2.data(), a.scale2.data(), t.width.data(), dx, d.norm2,
                d.norm2_bias, beta);
  finished(d.norm2);
}

template <class T>
void self_attention_backward(Backend<T>& backend, const ModelConfig& c, BatchShape s, const Dropout& dropout, const BlockTensors<const T>& w,
                             const T* x, const BlockActivations<T>& a, BlockScratch<T>& t, T* dx, const BlockTensors<T>& d,
                             T beta, Precision precision, const FinishedFrom<T>& finished) {
  const std::size_t rows = s.rows();
  const T* branch = into_branch(backend, s, c.width, dropout.at(kAttention), dx, t.branch);
  backend.linear_backward(rows, c.width, c.width, a.attention.data(), w.joint, branch, t.width.data(), d.joint, d.joint_bias, beta, precision);
  finished(d.joint);
  backend.attention_backward(attention_shape(c, s, precision), dropout.at(kProbabilities), a.qkv.data(), a.attention.data(), a.log_sums.data(),
                     t.width.data(), t.qkv.data());
  if (c.position == PositionKind::rope) {
    backend.rope(Turn::backward, rows, s.context, c.heads + c.kv_heads, c.head_size(), t.qkv.data(), c.qkv_width());
  }
  backend.linear_backward(rows, c.width, c.qkv_width(), a.norm1.data(), w.qkv, t.qkv.data(), t.width.data(), d.qkv, d.qkv_bias, beta, precision);
  backend.norm_backward(c.norm, rows, c.width, x, w.norm1, a.mean1.data(), a.scale1.data(), t.width.data(), dx, d.norm1, d.norm1_bias, beta);
  finished(d.norm1);
}

namespace {

// What waits in 16 bits, and what in 32.
template <class Activations, class F>
void each_packed(Activations& a, F f) {
  for (auto* part : {&a.norm1, &a.qkv, &a.attention, &a.norm2, &a.up, &a.active}) f(*part);
}
template <class Activations, class F>
void each_other(Activations& a, F f) {
  for (auto* part : {&a.middle, &a.log_sums, &a.mean1, &a.scale1, &a.mean2, &a.scale2}) f(*part);
}

}  // namespace

PackedActivations::PackedActivations(Device& device, const BlockActivations<float>& like) {
  std::size_t packed = 0, others = 0;
  each_packed(like, [&](const Array<float>& part) { packed += part.size(); });
  each_other(like, [&](const Array<float>& part) { others += part.size(); });
  numbers_ = Array<std::uint16_t>(device, packed);
  rest_ = Array<float>(device, others);
}

void PackedActivations::keep(Backend<float>& backend, Precision precision, const BlockActivations<float>& a) {
  std::uint16_t* out = numbers_.data();
  each_packed(a, [&](const Array<float>& part) { backend.pack(precision, part.size(), part.data(), out), out += part.size(); });
  float* rest = rest_.data();
  each_other(a, [&](const Array<float>& part) { backend.copy(rest, part.data(), part.bytes()), rest += part.size(); });
}

void PackedActivations::restore(Backend<float>& backend, Precision precision, BlockActivations<float>& a) const {
  const std::uint16_t* in = numbers_.data();
  each_packed(a, [&](Array<float>& part) { backend.unpack(precision, part.size(), in, part.data()), in += part.size(); });
  const float* rest = rest_.data();
  each_other(a, [&](Array<float>& part) { backend.copy(part.data(), rest, part.bytes()), rest += part.size(); });
}

#define TUTTI_FOR(T)                                                                                                   \
  template struct BlockActivations<T>;                                                                                 \
  template struct BlockScratch<T>;                                                                                     \
  template void block_forward(Backend<T>&, const ModelConfig&, BatchShape, const Dropout&, const BlockTensors<const T>&,\
                              const T*, BlockActivations<T>&, T*, Precision);                                          \
  template void mlp_backward(Backend<T>&, const ModelConfig&, BatchShape, const Dropout&, const BlockTensors<const T>&,\
                             const BlockActivations<T>&, BlockScratch<T>&, T*, const BlockTensors<T>&, T, Precision,   \
                             const FinishedFrom<T>&);                                                                  \
  template void self_attention_backward(Backend<T>&, const ModelConfig&, BatchShape, const Dropout&,                   \
                                        const BlockTensors<const T>&, const T*, const BlockActivations<T>&,            \
                                        BlockScratch<T>&, T*, const BlockTensors<T>&, T, Precision, const FinishedFrom<T>&);
TUTTI_FOR(float)
TUTTI_FOR(double)
#undef TUTTI_FOR

}  // namespace tutti::trainer
