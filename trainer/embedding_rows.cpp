#include "trainer/embedding_rows.h"

#include <vector>

namespace tutti::trainer {
namespace {

// Of all ranks; 0 where the table is not larger, or where there is nobody to exchange with.
std::size_t rows_of_all(const ModelConfig& config, BatchShape shape, int ranks) {
  const std::size_t rows = shape.rows() * std::size_t(ranks);
  return ranks > 1 && rows <= config.vocabulary ? rows : 0;
}

}  // namespace

EmbeddingRows::EmbeddingRows(const ModelConfig& config, BatchShape shape, Wire& wire, Backend<float>& backend)
    : config_(config), shape_(shape), wire_(wire), backend_(backend),
      tokens_(backend, rows_of_all(config, shape, wire.rank_count()), wire.memory()), dx_(backend, tokens_.size() * config.width, wire.memory()) {}

void EmbeddingRows::clear_positions(float* unit) {
  float* positions = embedding_tensors(config_, unit).positions;
  if (positions) backend_.clear(positions, config_.context * config_.width * sizeof(float));
}

void EmbeddingRows::gather(const Token* tokens, const float* dx) {
  const std::size_t rows = shape_.rows(), mine = rows * std::size_t(wire_.rank());
  const auto each = [&](std::size_t count) { return std::vector<std::size_t>(std::size_t(wire_.rank_count()), count); };
  backend_.copy(tokens_.data() + mine, tokens, rows * sizeof(Token));
  backend_.copy(dx_.data() + mine * config_.width, dx, rows * config_.width * sizeof(float));
  of_tokens_ = wire_.gather_blocks("gather of tokens", tokens_.data(), each(rows), DataType::i32);
  of_dx_ = wire_.gather_blocks("gather of gradients of rows", dx_.data(), each(rows * config_.width));
}

void EmbeddingRows::add_to(float* unit) {
  wire_.wait(of_tokens_);
  wire_.wait(of_dx_);
  const auto d = embedding_tensors(config_, unit);
  backend_.embedding_backward(shape_.samples * std::size_t(wire_.rank_count()), shape_.context, config_.width, tokens_.data(), dx_.data(), d.table,
                              d.positions, 1);
}

}  // namespace tutti::trainer
