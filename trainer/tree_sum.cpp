#include "trainer/tree_sum.h"

#include <algorithm>
#include <bit>
#include <utility>

namespace tutti::trainer {

std::size_t tree_split(std::size_t begin, std::size_t end) { return begin + std::bit_floor(end - begin - 1); }

namespace {

void collect(TreeNode node, std::size_t begin, std::size_t end, std::vector<TreeNode>& found) {
  if (node.end <= begin || end <= node.begin) return;
  if (begin <= node.begin && node.end <= end) return found.push_back(node);
  const std::size_t middle = tree_split(node.begin, node.end);
  collect({node.begin, middle}, begin, end, found);
  collect({middle, node.end}, begin, end, found);
}

bool is_node(TreeNode all, TreeNode wanted) {
  if (all == wanted) return true;
  if (all.end - all.begin < 2) return false;
  const std::size_t middle = tree_split(all.begin, all.end);
  if (wanted.end <= middle) return is_node({all.begin, middle}, wanted);
  return wanted.begin >= middle && is_node({middle, all.end}, wanted);
}

// Equal blocks of a power of two are the leaves of the canonical tree over ranks: both split at powers of two.
bool canonical(std::size_t micro_batches, int ranks) {
  const std::size_t each = micro_batches / std::size_t(ranks);
  return micro_batches % std::size_t(ranks) == 0 && std::has_single_bit(each);
}

}  // namespace

std::vector<TreeNode> complete_subtrees(std::size_t leaves, std::size_t begin, std::size_t end) {
  std::vector<TreeNode> found;
  collect({0, leaves}, begin, end, found);
  return found;
}

MicroBatches micro_batches_of(std::size_t all, int ranks, int rank) {
  const auto n = std::size_t(ranks), i = std::size_t(rank);
  return {all * i / n, all * (i + 1) / n};
}

TreeSum::TreeSum(const Layout& layout, const Shares& shares, std::size_t micro_batches, Wire& wire, Threads& threads)
    : layout_(layout), shares_(shares), micro_batches_(micro_batches), wire_(wire), threads_(threads),
      split_(layout, wire.rank_count(), wire.rank()), by_library_(canonical(micro_batches, wire.rank_count())) {
  for (int rank = 0; rank < wire.rank_count(); ++rank) {
    const MicroBatches own = micro_batches_of(micro_batches, wire.rank_count(), rank);
    nodes_.push_back(complete_subtrees(micro_batches, own.begin, own.end));
  }
}

std::size_t TreeSum::bytes() const { return made_ * layout_.count() * sizeof(float); }

TreeSum::Gradient TreeSum::room() {
  if (free_.empty()) {
    ++made_;
    return std::make_unique<std::vector<float>>(layout_.count());
  }
  Gradient taken = std::move(free_.back());
  free_.pop_back();
  return taken;
}

void TreeSum::begin(std::size_t number, bool counts, bool) {
  if (std::exchange(complete_, false)) {      // a new step
    for (Partial& partial : stack_) free_.push_back(std::move(partial.sum));
    stack_.clear();
  }
  now_ = {number, number + 1};
  counts_ = counts;
  top_ = room();
}

void TreeSum::end() {
  if (!counts_) return free_.push_back(std::move(top_));
  stack_.push_back({now_, std::move(top_)});
  while (stack_.size() > 1) {
    const TreeNode joined{stack_[stack_.size() - 2].node.begin, stack_.back().node.end};
    if (!is_node({0, micro_batches_}, joined)) return;
    merge();
  }
}

void TreeSum::merge() {
  Partial right = std::move(stack_.back());
  stack_.pop_back();
  float* to = stack_.back().sum->data();
  const float* from = right.sum->data();
  threads_.ranges(layout_.count(), 1 << 14, [&](std::size_t begin, std::size_t end) {
    for (std::size_t i = begin; i < end; ++i) to[i] += from[i];
  });
  stack_.back().node.end = right.node.end;
  free_.push_back(std::move(right.sum));
}

void TreeSum::finish() {
  complete_ = true;
  if (wire_.rank_count() == 1) return;
  for (std::size_t unit = layout_.units().size(); unit-- > 0;) {
    float* at = stack_.front().sum->data() + layout_.units()[unit].offset;
    if (!by_library_) exchange_unit(unit);
    Exchange exchange = shares_.owners() > 1 ? (by_library_ ? wire_.sum_blocks("sum of gradients", at, shares_.counts(unit)) : Exchange())
                : by_library_        ? wire_.sum("sum of gradients", at, layout_.units()[unit].count)
                                     : wire_.gather_blocks("gather of gradients", at, split_.counts(unit));
    wire_.wait(exchange);
  }
}

void TreeSum::exchange_unit(std::size_t unit) {
  const std::size_t offset = layout_.units()[unit].offset, mine = split_.mine(unit).count;
  std::vector<std::size_t> sends, receives;
  std::vector<float> out, in;
  for (int rank = 0; rank < wire_.rank_count(); ++rank) {
    const Share share = split_.of(unit, rank);
    for (const Partial& partial : stack_) {
      const float* begin = partial.sum->data() + offset + share.begin;
      out.insert(out.end(), begin, begin + share.count);
    }
    sends.push_back(share.count * stack_.size());
    receives.push_back(mine * nodes_[std::size_t(rank)].size());
  }
  std::size_t all = 0;
  for (const std::size_t count : receives) all += count;
  in.resize(all);
  Exchange exchange = wire_.swap("partial sums", out.data(), sends, in.data(), receives);
  wire_.wait(exchange);
  std::vector<const float*> parts(micro_batches_);        // by the first micro-batch of a partial sum
  const float* next = in.data();
  for (const auto& of_rank : nodes_) {
    for (const TreeNode& node : of_rank) {
      parts[node.begin] = next;
      next += mine;
    }
  }
  add_up({0, micro_batches_}, parts, mine, stack_.front().sum->data() + offset + split_.mine(unit).begin);
}

void TreeSum::add_up(TreeNode node, const std::vector<const float*>& parts, std::size_t count, float* out) {
  for (const auto& of_rank : nodes_) {
    if (std::find(of_rank.begin(), of_rank.end(), node) == of_rank.end()) continue;
    std::copy_n(parts[node.begin], count, out);
    return;
  }
  const std::size_t middle = tree_split(node.begin, node.end);
  std::vector<float> right(count);
  add_up({node.begin, middle}, parts, count, out);
  add_up({middle, node.end}, parts, count, right.data());
  for (std::size_t i = 0; i < count; ++i) out[i] += right[i];
}

}  // namespace tutti::trainer
