#include "trainer/cuda/kernel_backend.h"

#include <fmt/format.h>

#include <algorithm>

#include "trainer/failure.h"

namespace tutti::trainer::cuda {

const void* KernelBackend::narrowed(Precision precision, Matrix<float> x, std::size_t rows, std::size_t columns, Array<std::uint16_t>& room) {
  if (x.form == Form::transposed) std::swap(rows, columns);
  const std::size_t count = (rows - 1) * x.ld + columns;
  if (room.size() < count) room = Array<std::uint16_t>(*this, count);
  pack(precision, count, x.data, room.data());
  return room.data();
}

void KernelBackend::product(std::size_t m, std::size_t n, std::size_t k, float alpha, Matrix<float> a, Matrix<float> b, float beta, float* c,
                            std::size_t ldc, Precision precision) {
  Product p{m, n, k, alpha, a.data, b.data, a.ld, b.ld, a.form, b.form, precision, beta, c, ldc};
  if (precision != Precision::f32) p.a = narrowed(precision, a, m, k, rooms_[0]), p.b = narrowed(precision, b, k, n, rooms_[1]);
  multiply(p);
}

void KernelBackend::linear_forward(std::size_t rows, std::size_t inputs, std::size_t outputs, const float* x, const float* w, const float* b,
                                   float* y, const float* onto, Precision precision) {
  const bool starts = b || onto;
  if (starts) over_elements<StartRows>(rows * outputs, {rows, outputs, onto, b, y});
  product(rows, outputs, inputs, 1, {x, inputs}, {w, outputs}, starts ? 1.0f : 0.0f, y, outputs, precision);
}

void KernelBackend::linear_backward(std::size_t rows, std::size_t inputs, std::size_t outputs, const float* x, const float* w, const float* dy,
                                    float* dx, float* d_w, float* d_b, float beta, Precision precision) {
  if (d_b) over_columns<AddColumns>(outputs, {rows, outputs, dy, d_b, beta});
  product(inputs, outputs, rows, 1, {x, inputs, Form::transposed}, {dy, outputs}, beta, d_w, outputs, precision);
  product(rows, inputs, outputs, 1, {dy, outputs}, {w, outputs, Form::transposed}, 0, dx, inputs, precision);
}

void KernelBackend::norm_forward(NormKind kind, std::size_t rows, std::size_t width, const float* x, const float* weight, const float* bias,
                                 float* y, float* mean, float* scale) {
  over_rows<NormForward>(rows, {kind, rows, width, x, weight, bias, y, mean, scale});
}

void KernelBackend::norm_backward(NormKind kind, std::size_t rows, std::size_t width, const float* x, const float* weight, const float* mean,
                                  const float* scale, const float* dy, float* dx, float* d_weight, float* d_bias, float beta) {
  over_rows<NormBack>(rows, {kind, rows, width, x, weight, mean, scale, dy, dx});
  over_columns<NormWeightsBack>(width, {rows, width, x, mean, scale, dy, d_weight, d_bias, beta});
}

void KernelBackend::activation_forward(ActivationKind kind, std::size_t rows, std::size_t width, const float* x, float* y) {
  over_elements<Activate>(rows * width, {kind, rows, width, x, y});
}
void KernelBackend::activation_backward(ActivationKind kind, std::size_t rows, std::size_t width, const float* x, const float* dy, float* dx) {
  over_elements<ActivateBack>(rows * width, {kind, rows, width, x, dy, dx});
}

void KernelBackend::rope(Turn turn, std::size_t rows, std::size_t context, std::size_t heads, std::size_t size, float* x, std::size_t stride) {
  over_elements<Rotate>(rows * (size / 2), {turn, rows, context, heads, size, stride, x});
}

template <template <std::size_t> class Body>
void KernelBackend::over_tiles(const AttentionShape& s, std::size_t heads, const AttentionArguments& arguments) {
  const auto blocks = [&](std::size_t side) { return s.batch * heads * ((s.context + side - 1) / side); };
  if (s.head_size <= 64) return run<Body<64>>(blocks(Tile<64>::kSide), arguments);
  if (s.head_size <= kLargestHead) return run<Body<kLargestHead>>(blocks(Tile<kLargestHead>::kSide), arguments);
  refuse(fmt::format("heads of {} numbers: the kernels take at most {}; give more --heads", s.head_size, kLargestHead));
}

void KernelBackend::attention_forward(const AttentionShape& shape, const Dropout& dropout, const float* qkv, float* out, float* log_sums) {
  over_tiles<AttentionForward>(shape, shape.heads, {shape, dropout, qkv, nullptr, nullptr, nullptr, nullptr, out, log_sums, nullptr});
}

void KernelBackend::attention_backward(const AttentionShape& shape, const Dropout& dropout, const float* qkv, const float* out,
                                       const float* log_sums, const float* d_out, float* d_qkv) {
  const std::size_t rows = shape.batch * shape.heads * shape.context;
  if (along_.size() < rows) along_ = Array<float>(*this, rows);
  const AttentionArguments arguments{shape, dropout, qkv, out, log_sums, d_out, along_.data(), nullptr, along_.data(), d_qkv};
  over_elements<AlongRows>(rows, arguments);
  over_tiles<AttentionKeysBack>(shape, shape.kv_heads, arguments);
  over_tiles<AttentionQueriesBack>(shape, shape.heads, arguments);
}

void KernelBackend::embedding_forward(std::size_t batch, std::size_t context, std::size_t width, const Token* tokens, const float* table,
                                      const float* positions, float* x) {
  over_elements<Embed>(batch * context * width, {batch * context, context, width, tokens, table, positions, x});
}

void KernelBackend::embedding_backward(std::size_t batch, std::size_t context, std::size_t width, const Token* tokens, const float* dx,
                                       float* d_table, float* d_positions, float beta) {
  over_rows<EmbedBack>(batch * context, {batch * context, width, tokens, dx, d_table});
  if (d_positions) over_elements<EmbedPositionsBack>(context * width, {batch, context, width, dx, d_positions, beta});
}

void KernelBackend::loss_forward(std::size_t rows, std::size_t vocabulary, const float* logits, const Token* targets, float* losses,
                                 float* log_sums) {
  over_rows<LossForward>(rows, {rows, vocabulary, logits, targets, losses, log_sums});
}
void KernelBackend::loss_backward(std::size_t rows, std::size_t vocabulary, const Token* targets, const float* log_sums, float scale,
                                  float* logits) {
  over_rows<LossBack>(rows, {rows, vocabulary, targets, log_sums, scale, logits});
}

void KernelBackend::drop(const Dropout& dropout, std::size_t samples, std::size_t length, float* x) {
  if (dropout.rate > 0) over_elements<Drop>(samples * length, {dropout, samples, length, x});
}
void KernelBackend::add(std::size_t n, const float* x, float* y) { over_elements<Add>(n, {n, x, y}); }
void KernelBackend::round(Precision precision, std::size_t n, float* x) { over_elements<Round>(n, {precision, n, x}); }
void KernelBackend::pack(Precision precision, std::size_t n, const float* x, std::uint16_t* out) {
  over_elements<Narrow>(n, {precision, n, x, out});
}
void KernelBackend::unpack(Precision precision, std::size_t n, const std::uint16_t* x, float* out) {
  over_elements<Widen>(n, {precision, n, x, out});
}
void KernelBackend::adamw(std::size_t n, const AdamWStep& step, const float* gradient, float* first, float* second, float* weights) {
  over_elements<ChangeWeights>(n, {n, step, gradient, first, second, weights});
}
void KernelBackend::sum_squares(std::size_t blocks, const float* x, double* squares) { over_rows<SumSquares>(blocks, {blocks, x, squares}); }

}  // namespace tutti::trainer::cuda
