#include "trainer/model.h"

#include <type_traits>

namespace tutti::trainer {
namespace {

constexpr std::uint64_t kEmbedding = 1 << 20;       // dropout's place; blocks have their number

}  // namespace

template <class T>
Model<T>::Model(const ModelConfig& config, BatchShape shape, bool recompute, Backend<T>& backend, Precision precision)
    : config_(config), shape_(shape), recompute_(recompute), precision_(precision), backend_(backend), scratch_(backend, config, shape),
      last_norm_(backend, shape.rows() * config.width), mean_(backend, shape.rows()), scale_(backend, shape.rows()),
      logits_(backend, shape.rows() * config.vocabulary), losses_(backend, shape.rows()), log_sums_(backend, shape.rows()),
      d_stream_(backend, shape.rows() * config.width) {
  for (std::size_t i = 0; i <= config.layers; ++i) streams_.emplace_back(backend, shape.rows() * config.width);
  const std::size_t kept = recompute || packs() ? 1 : config.layers;
  for (std::size_t i = 0; i < kept; ++i) blocks_.emplace_back(backend, config, shape);
  if constexpr (std::is_same_v<T, float>) {
    for (std::size_t i = 0; packs() && i < config.layers; ++i) packed_.emplace_back(backend, blocks_.front());
  }
}

template <class T>
std::size_t Model<T>::activation_bytes() const {
  const std::size_t scratch = scratch_.branch.bytes() + scratch_.width.bytes() + scratch_.qkv.bytes() + scratch_.up.bytes() +
                              scratch_.active.bytes() + d_stream_.bytes();
  std::size_t packed = 0;
  for (const PackedActivations& part : packed_) packed += part.bytes();
  return packed + streams_.size() * streams_[0].bytes() + blocks_.size() * blocks_.front().bytes() + scratch + last_norm_.bytes() +
         logits_.bytes();
}

template <class T>
void Model<T>::forward_logits(WeightSource<T>& weights, const Token* tokens, const Dropout& dropout) {
  const std::size_t width = config_.width;
  const auto embedding = embedding_tensors(config_, weights.weights(0, 1));
  backend_.embedding_forward(shape_.samples, shape_.context, width, tokens, embedding.table, embedding.positions, streams_[0].data());
  backend_.drop(dropout.at(kEmbedding), shape_.samples, shape_.context * width, streams_[0].data());
  for (std::size_t layer = 0; layer < config_.layers; ++layer) {
    const auto w = block(weights, layer, layer + 1 < config_.layers ? layer + 2 : 0);
    block_forward(backend_, config_, shape_, dropout.at(layer), w, streams_[layer].data(), kept(layer), streams_[layer + 1].data(), precision_);
    if constexpr (std::is_same_v<T, float>) {
      if (packs()) packed_[layer].keep(backend_, precision_, kept(layer));
    }
    if (w.last_norm) {
      backend_.norm_forward(config_.norm, shape_.rows(), width, streams_.back().data(), w.last_norm, w.last_norm_bias, last_norm_.data(),
                   mean_.data(), scale_.data());
    }
    weights.release(layer + 1);
  }
  backend_.product(shape_.rows(), config_.vocabulary, width, T(1), {last_norm_.data(), width},
             {embedding.table, width, Form::transposed}, T(0), logits_.data(), config_.vocabulary, precision_);
}

template <class T>
double Model<T>::forward(WeightSource<T>& weights, const Token* tokens, const Token* targets, const Dropout& dropout) {
  forward_logits(weights, tokens, dropout);
  backend_.loss_forward(shape_.rows(), config_.vocabulary, logits_.data(), targets, losses_.data(), log_sums_.data());
  std::vector<T> losses(shape_.rows());
  backend_.download(losses.data(), losses_.data(), losses_.bytes());
  double sum = 0;
  for (const T loss : losses) sum += double(loss);
  return sum / double(shape_.rows());
}

template <class T>
void Model<T>::backward(WeightSource<T>& weights, GradientSink<T>& gradients, const Token* tokens, const Token* targets,
                        const Dropout& dropout, T scale) {
  const std::size_t rows = shape_.rows(), width = config_.width, vocabulary = config_.vocabulary;
  backend_.loss_backward(rows, vocabulary, targets, log_sums_.data(), scale / T(rows), logits_.data());
  const auto head = embedding_tensors(config_, weights.weights(0, config_.layers));
  const GradientPlace<T> place = gradients.gradient(0);
  const auto d_embedding = embedding_tensors(config_, place.data);
  const T beta = place.fresh ? T(0) : T(1);
  backend_.product(vocabulary, width, rows, T(1), {logits_.data(), vocabulary, Form::transposed}, {last_norm_.data(), width}, beta,
             d_embedding.table, width, precision_);
  const bool apart = gradients.head_finished();
  backend_.product(rows, width, vocabulary, T(1), {logits_.data(), vocabulary}, {head.table, width}, T(0), scratch_.width.data(), width, precision_);
  weights.release(0);
  backend_.clear(d_stream_.data(), d_stream_.bytes());
  for (std::size_t layer = config_.layers; layer-- > 0;) {
    const auto w = block(weights, layer, layer > 0 ? layer : 1);
    const GradientPlace<T> at = gradients.gradient(layer + 1);
    const auto d = block_tensors(config_, layer, at.data);
    const T block_beta = at.fresh ? T(0) : T(1);
    if (w.last_norm) {
      backend_.norm_backward(config_.norm, rows, width, streams_.back().data(), w.last_norm, mean_.data(), scale_.data(),
                    scratch_.width.data(), d_stream_.data(), d.last_norm, d.last_norm_bias, block_beta);
    }
    if (recompute_) {
      block_forward(backend_, config_, shape_, dropout.at(layer), w, streams_[layer].data(), kept(layer), streams_[layer + 1].data(), precision_);
    } else if constexpr (std::is_same_v<T, float>) {
      if (packs()) packed_[layer].restore(backend_, precision_, kept(layer));
    }
    const auto finished = [&](const T* from) {
      if (from == at.data) weights.release(layer + 1);
      gradients.finished(layer + 1, std::size_t(from - at.data));
    };
    mlp_backward<T>(backend_, config_, shape_, dropout.at(layer), w, kept(layer), scratch_, d_stream_.data(), d, block_beta,
                    precision_, finished);
    self_attention_backward<T>(backend_, config_, shape_, dropout.at(layer), w, streams_[layer].data(), kept(layer), scratch_,
                               d_stream_.data(), d, block_beta, precision_, finished);
  }
  backend_.drop(dropout.at(kEmbedding), shape_.samples, shape_.context * width, d_stream_.data());
  if (apart) gradients.looked_up(tokens, d_stream_.data());
  else backend_.embedding_backward(shape_.samples, shape_.context, width, tokens, d_stream_.data(), d_embedding.table, d_embedding.positions, beta);
  gradients.finished(0, 0);
}

template class Model<float>;
template class Model<double>;

}  // namespace tutti::trainer
