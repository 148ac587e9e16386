#pragma once
// See gradient_sum.h. A unit's gradient exists whole only from its backward pass until it has been exchanged: two units at a time.
#include <array>
#include <vector>

#include "trainer/backend.h"
#include "trainer/embedding_rows.h"
#include "trainer/gradient_sum.h"
#include "trainer/shares.h"
#include "trainer/wire.h"

namespace tutti::trainer {

class ShardSum : public GradientSum {
 public:
  // `narrow`: gradients are rounded to bf16 for the exchange.
  ShardSum(const Layout& layout, const Shares& shares, Wire& wire, Backend<float>& backend, EmbeddingRows rows, bool narrow);
  void begin(std::size_t number, bool counts, bool last) override;
  void end() override;
  void finish() override;
  GradientPlace<float> gradient(std::size_t unit) override;
  bool head_finished() override;
  void looked_up(const Token* tokens, const float* dx) override { rows_.gather(tokens, dx); }
  void finished(std::size_t unit, std::size_t from) override;
  float* owned(std::size_t unit) override { return sums_[unit].data(); }
  std::size_t bytes() const override;

 private:
  // Room for one unit's whole gradient, and the exchange that reads it.
  struct Room {
    Array<float> data;
    Array<std::uint16_t> narrow;            // what is exchanged in its place; empty unless wanted
    Exchange exchange;
    bool in_flight = false;
    std::size_t unit = 0;
  };
  Room& room_of(std::size_t unit) { return unit == 0 ? embedding_ : blocks_[unit % 2]; }
  void exchange(std::size_t unit);
  void settle(Room& room);            // waits, and adds this rank's share to its sum
  const Layout& layout_;
  const Shares& shares_;
  Wire& wire_;
  Backend<float>& backend_;
  EmbeddingRows rows_;
  const bool narrow_;
  Room embedding_;                    // open throughout the backward pass
  std::array<Room, 2> blocks_;
  std::vector<Array<float>> sums_;
  bool first_ = true;                 // micro-batch of the step
};

}  // namespace tutti::trainer
