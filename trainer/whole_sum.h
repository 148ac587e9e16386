#pragma once
// See gradient_sum.h. Micro-batches add up in one array, which the last backward pass finishes from its end to its beginning: whenever
// there is a bucket full, its exchange begins and goes on beside the rest. The embedding's begins before all others where its rows can
// follow apart.
#include <vector>

#include "trainer/backend.h"
#include "trainer/embedding_rows.h"
#include "trainer/gradient_sum.h"
#include "trainer/shares.h"
#include "trainer/wire.h"

namespace tutti::trainer {

class WholeSum : public GradientSum {
 public:
  // `bucket_bytes`: what is finished waits until a bucket has so many, to save messages.
  // `narrow`: gradients are rounded to bf16 for the exchange.
  WholeSum(const Layout& layout, const Shares& shares, Wire& wire, Backend<float>& backend, EmbeddingRows rows, std::size_t bucket_bytes, bool narrow);
  void begin(std::size_t number, bool counts, bool last) override;
  void end() override;
  void finish() override;
  GradientPlace<float> gradient(std::size_t unit) override { return {sum_.data() + layout_.units()[unit].offset, fresh_}; }
  bool head_finished() override;
  void looked_up(const Token* tokens, const float* dx) override { rows_.gather(tokens, dx); }
  void finished(std::size_t unit, std::size_t from) override;
  float* owned(std::size_t unit) override;
  std::size_t bytes() const override { return sum_.bytes() + narrow_.bytes() + rows_.bytes(); }

 private:
  // Numbers [first, first + count) of the flat array, and the sum that is theirs when `exchanges` are done: one, or one a unit with owners.
  struct Bucket {
    std::size_t first, count;
    std::vector<Exchange> exchanges;
  };
  void exchange(std::size_t first, std::size_t end);
  const Layout& layout_;
  const Shares& shares_;
  Wire& wire_;
  Backend<float>& backend_;
  EmbeddingRows rows_;
  const std::size_t bucket_bytes_;
  Array<float> sum_;
  bool fresh_ = true;                 // sum_ counts nothing yet
  bool apart_ = false;                // rows_ are to be added at the end
  std::size_t sent_ = 0;              // from here on of the flat array all is on its way
  bool last_ = false;
  std::vector<Bucket> buckets_;
  Array<std::uint16_t> narrow_;         // the flat array in bf16; empty unless wanted
};

}  // namespace tutti::trainer
