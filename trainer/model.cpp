#include "trainer/model.h"

#include <algorithm>
#include <type_traits>

#include "trainer/gemm.h"
#include "trainer/loss.h"

namespace tutti::trainer {
namespace {

constexpr std::uint64_t kEmbedding = 1 << 20;       // dropout's place; blocks have their number

}  // namespace

template <class T>
Model<T>::Model(const ModelConfig& config, BatchShape shape, bool recompute, Threads& threads, Precision precision)
    : config_(config), shape_(shape), recompute_(recompute), precision_(precision), threads_(threads),
      streams_(config.layers + 1, std::vector<T>(shape.rows() * config.width)),
      blocks_(recompute || packs() ? 1 : config.layers, BlockActivations<T>(config, shape)), scratch_(config, shape),
      last_norm_(shape.rows() * config.width), mean_(shape.rows()), scale_(shape.rows()), logits_(shape.rows() * config.vocabulary),
      losses_(shape.rows()), log_sums_(shape.rows()), d_stream_(shape.rows() * config.width) {
  if constexpr (std::is_same_v<T, float>) {
    if (packs()) packed_.assign(config.layers, PackedActivations(blocks_.front()));
  }
}

template <class T>
std::size_t Model<T>::activation_bytes() const {
  const auto& b = blocks_.front();
  const std::size_t block = b.norm1.size() + b.qkv.size() + b.log_sums.size() + b.attention.size() + b.middle.size() + b.norm2.size() +
                            b.up.size() + b.active.size() + 4 * b.mean1.size();
  const std::size_t scratch = scratch_.branch.size() + scratch_.width.size() + scratch_.qkv.size() + scratch_.up.size() +
                              scratch_.active.size() + d_stream_.size();
  std::size_t packed = 0;
  for (const PackedActivations& part : packed_) packed += part.bytes();
  return packed + sizeof(T) * (streams_.size() * streams_[0].size() + blocks_.size() * block + scratch + last_norm_.size() + logits_.size());
}

template <class T>
void Model<T>::forward_logits(WeightSource<T>& weights, const Token* tokens, const Dropout& dropout) {
  const std::size_t width = config_.width;
  const auto embedding = embedding_tensors(config_, weights.weights(0, 1));
  embedding_forward(threads_, shape_.samples, shape_.context, width, tokens, embedding.table, embedding.positions, streams_[0].data());
  drop(threads_, dropout.at(kEmbedding), shape_.samples, shape_.context * width, streams_[0].data());
  for (std::size_t layer = 0; layer < config_.layers; ++layer) {
    const auto w = block(weights, layer, layer + 1 < config_.layers ? layer + 2 : 0);
    block_forward(threads_, config_, shape_, dropout.at(layer), w, streams_[layer].data(), kept(layer), streams_[layer + 1].data(), precision_);
    if constexpr (std::is_same_v<T, float>) {
      if (packs()) packed_[layer].keep(precision_, kept(layer));
    }
    if (w.last_norm) {
      norm_forward(threads_, config_.norm, shape_.rows(), width, streams_.back().data(), w.last_norm, w.last_norm_bias, last_norm_.data(),
                   mean_.data(), scale_.data());
    }
    weights.release(layer + 1);
  }
  product<T>(threads_, shape_.rows(), config_.vocabulary, width, T(1), {last_norm_.data(), width},
             {embedding.table, width, Form::transposed}, T(0), logits_.data(), config_.vocabulary, precision_);
}

template <class T>
double Model<T>::forward(WeightSource<T>& weights, const Token* tokens, const Token* targets, const Dropout& dropout) {
  forward_logits(weights, tokens, dropout);
  loss_forward(threads_, shape_.rows(), config_.vocabulary, logits_.data(), targets, losses_.data(), log_sums_.data());
  double sum = 0;
  for (const T loss : losses_) sum += double(loss);
  return sum / double(shape_.rows());
}

template <class T>
void Model<T>::backward(WeightSource<T>& weights, GradientSink<T>& gradients, const Token* tokens, const Token* targets,
                        const Dropout& dropout, T scale) {
  const std::size_t rows = shape_.rows(), width = config_.width, vocabulary = config_.vocabulary;
  loss_backward(threads_, rows, vocabulary, targets, log_sums_.data(), scale / T(rows), logits_.data());
  const auto head = embedding_tensors(config_, weights.weights(0, config_.layers));
  const GradientPlace<T> place = gradients.gradient(0);
  const auto d_embedding = embedding_tensors(config_, place.data);
  const T beta = place.fresh ? T(0) : T(1);
  product<T>(threads_, vocabulary, width, rows, T(1), {logits_.data(), vocabulary, Form::transposed}, {last_norm_.data(), width}, beta,
             d_embedding.table, width, precision_);
  product<T>(threads_, rows, width, vocabulary, T(1), {logits_.data(), vocabulary}, {head.table, width}, T(0), scratch_.width.data(), width, precision_);
  weights.release(0);
  std::fill(d_stream_.begin(), d_stream_.end(), T(0));
  for (std::size_t layer = config_.layers; layer-- > 0;) {
    const auto w = block(weights, layer, layer > 0 ? layer : 1);
    const GradientPlace<T> at = gradients.gradient(layer + 1);
    const auto d = block_tensors(config_, layer, at.data);
    const T block_beta = at.fresh ? T(0) : T(1);
    if (w.last_norm) {
      norm_backward(threads_, config_.norm, rows, width, streams_.back().data(), w.last_norm, mean_.data(), scale_.data(),
                    scratch_.width.data(), d_stream_.data(), d.last_norm, d.last_norm_bias, block_beta);
    }
    if (recompute_) {
      block_forward(threads_, config_, shape_, dropout.at(layer), w, streams_[layer].data(), kept(layer), streams_[layer + 1].data(), precision_);
    } else if constexpr (std::is_same_v<T, float>) {
      if (packs()) packed_[layer].restore(precision_, kept(layer));
    }
    block_backward(threads_, config_, shape_, dropout.at(layer), w, streams_[layer].data(), kept(layer), scratch_, d_stream_.data(), d,
                   block_beta, precision_);
    weights.release(layer + 1);
    gradients.finished(layer + 1);
  }
  drop(threads_, dropout.at(kEmbedding), shape_.samples, shape_.context * width, d_stream_.data());
  embedding_backward(threads_, shape_.samples, shape_.context, width, tokens, d_stream_.data(), d_embedding.table, d_embedding.positions,
                     beta);
  gradients.finished(0);
}

template class Model<float>;
template class Model<double>;

}  // namespace tutti::trainer
