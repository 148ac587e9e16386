// The tree over micro-batches: what ranks hold, that it covers each once, and that it is the canonical order where blocks align.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <bit>
#include "trainer/tree_sum.h"

namespace tutti::trainer {

void PrintTo(const TreeNode& node, std::ostream* out) { *out << "[" << node.begin << ", " << node.end << ")"; }

namespace test {
namespace {

using testing::ElementsAre;

TEST(Tree, SplitsAtThePowerOfTwoBelow) {
  EXPECT_EQ(tree_split(0, 8), 4u);
  EXPECT_EQ(tree_split(0, 12), 8u);
  EXPECT_EQ(tree_split(0, 5), 4u);
  EXPECT_EQ(tree_split(8, 12), 10u);
  EXPECT_EQ(tree_split(3, 5), 4u);
}

TEST(Tree, RanksHoldWholeSubtrees) {
  EXPECT_THAT(complete_subtrees(8, 0, 8), ElementsAre(TreeNode{0, 8}));
  EXPECT_THAT(complete_subtrees(8, 4, 8), ElementsAre(TreeNode{4, 8}));
  EXPECT_THAT(complete_subtrees(8, 0, 2), ElementsAre(TreeNode{0, 2}));
  EXPECT_THAT(complete_subtrees(8, 2, 5), ElementsAre(TreeNode{2, 4}, TreeNode{4, 5}));
  EXPECT_THAT(complete_subtrees(8, 5, 8), ElementsAre(TreeNode{5, 6}, TreeNode{6, 8}));
  EXPECT_THAT(complete_subtrees(12, 6, 12), ElementsAre(TreeNode{6, 8}, TreeNode{8, 12}));
  EXPECT_THAT(complete_subtrees(12, 4, 8), ElementsAre(TreeNode{4, 8}));
}

TEST(Tree, EachMicroBatchOnce) {
  for (std::size_t all = 1; all < 40; ++all) {
    for (int ranks = 1; std::size_t(ranks) <= all; ++ranks) {
      std::size_t next = 0;
      for (int rank = 0; rank < ranks; ++rank) {
        const MicroBatches own = micro_batches_of(all, ranks, rank);
        ASSERT_EQ(own.begin, next);
        ASSERT_LT(own.begin, own.end);
        const auto nodes = complete_subtrees(all, own.begin, own.end);
        ASSERT_LE(nodes.size(), 2 * std::size_t(std::bit_width(all)));
        for (const TreeNode& node : nodes) {
          ASSERT_EQ(node.begin, next);
          next = node.end;
        }
        ASSERT_EQ(next, own.end);
      }
      ASSERT_EQ(next, all);
    }
  }
}

}  // namespace
}  // namespace test
}  // namespace tutti::trainer
