#pragma once
// See gradient_sum.h. The sum of all micro-batches follows one balanced binary tree over their numbers, in f32, so that its bits do
// not depend on how many ranks there are. It is the tree of tutti's canonical order: [begin, end) is split where the left part is
// the largest power of two below its length.
//
// A rank adds up the complete subtrees that lie within its own micro-batches. Where every rank holds exactly one and these are the
// canonical tree's leaves, the library's sum goes on from there; elsewhere the owner of a share gets the few partial sums of all
// ranks and adds them along the tree. It holds whole gradients, one for each level of the tree, whatever the ZeRO stage.
#include <cstddef>
#include <memory>
#include <vector>

#include "trainer/gradient_sum.h"
#include "trainer/shares.h"
#include "trainer/threads.h"
#include "trainer/wire.h"

namespace tutti::trainer {

// A subtree: the micro-batches [begin, end).
struct TreeNode {
  std::size_t begin, end;
  bool operator==(const TreeNode&) const = default;
};
std::size_t tree_split(std::size_t begin, std::size_t end);
// The largest subtrees of the tree over [0, leaves) within [begin, end), from left to right.
std::vector<TreeNode> complete_subtrees(std::size_t leaves, std::size_t begin, std::size_t end);

// Micro-batches of one rank of a step: contiguous, as even as possible.
struct MicroBatches {
  std::size_t begin, end;
};
MicroBatches micro_batches_of(std::size_t all, int ranks, int rank);

class TreeSum : public GradientSum {
 public:
  TreeSum(const Layout& layout, const Shares& shares, std::size_t micro_batches, Wire& wire, Threads& threads);
  void begin(std::size_t number, bool counts, bool last) override;
  void end() override;
  void finish() override;
  GradientPlace<float> gradient(std::size_t unit) override { return {top_->data() + layout_.units()[unit].offset, true}; }
  void finished(std::size_t, std::size_t) override {}
  float* owned(std::size_t unit) override { return stack_.front().sum->data() + layout_.units()[unit].offset + shares_.mine(unit).begin; }
  std::size_t bytes() const override;
  // Whether the library's canonical order carries the sum.
  bool by_library() const { return by_library_; }

 private:
  using Gradient = std::unique_ptr<std::vector<float>>;
  struct Partial {
    TreeNode node;
    Gradient sum;
  };
  Gradient room();
  void merge();                       // the two topmost partials, while they are siblings
  void exchange_unit(std::size_t unit);
  // Adds `count` numbers along the tree into `out`; parts[begin of a rank's subtree] is where that partial sum lies.
  void add_up(TreeNode node, const std::vector<const float*>& parts, std::size_t count, float* out);

  const Layout& layout_;
  const Shares& shares_;
  const std::size_t micro_batches_;
  Wire& wire_;
  Threads& threads_;
  const Shares split_;                        // who adds up which part: as `shares`, but among all ranks
  std::vector<std::vector<TreeNode>> nodes_;  // of each rank
  bool by_library_ = false;
  std::vector<Partial> stack_;
  std::vector<Gradient> free_;
  Gradient top_;                              // of the micro-batch being computed
  TreeNode now_{};
  bool counts_ = false;
  bool complete_ = false;                     // the stack holds the last step's sum
  std::size_t made_ = 0;                      // gradients in memory
};

}  // namespace tutti::trainer
