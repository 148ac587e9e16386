#include "algorithms/sums.h"

#include <algorithm>
#include "algorithms/schedule.h"

namespace tutti::algorithms {

std::uint32_t Sums::intern(std::unordered_map<std::uint64_t, std::uint32_t>& known, std::uint64_t key,
                           const Node& node) {
  const auto [at, fresh] = known.try_emplace(key, std::uint32_t(nodes_.size()));
  if (fresh) nodes_.push_back(node);
  return at->second;
}

std::uint32_t Sums::leaf(std::uint32_t rank, std::uint32_t shape) {
  return intern(leaf_of_, std::uint64_t(rank) << 32 | shape, {0, rank, 1, -1});
}

std::uint32_t Sums::add(std::uint32_t a, std::uint32_t b) {
  if (a > b) std::swap(a, b);
  const std::uint64_t leaves = std::uint64_t(nodes_[a].leaves) + nodes_[b].leaves;
  return intern(sum_of_, std::uint64_t(a) << 32 | b,
                {a, b, std::uint32_t(std::min<std::uint64_t>(leaves, UINT32_MAX)), -1});
}

std::uint32_t Sums::tree(std::span<const std::uint32_t> operands) {
  if (operands.size() == 1) return operands[0];
  const std::uint32_t left = tree_split(std::uint32_t(operands.size()));
  const std::uint32_t low = tree(operands.first(left));
  return add(low, tree(operands.subspan(left)));
}

std::uint32_t Sums::canonical(std::uint32_t shape) {
  const auto [at, fresh] = canonical_of_.try_emplace(shape, kNothing);
  if (!fresh) return at->second;
  std::vector<std::uint32_t> leaves(rank_count_);
  for (std::uint32_t rank = 0; rank < rank_count_; ++rank) leaves[rank] = leaf(rank, shape);
  return at->second = tree(leaves);
}

bool Sums::complete(std::uint32_t sum) {
  if (sum == kNothing || nodes_[sum].leaves != rank_count_) return false;
  if (nodes_[sum].complete >= 0) return nodes_[sum].complete == 1;
  std::vector<bool> seen(rank_count_, false);
  std::vector<std::uint32_t> open{sum};
  bool once = true;
  while (!open.empty()) {
    const Node node = nodes_[open.back()];
    open.pop_back();
    if (node.left != 0) {
      open.push_back(node.left);
      open.push_back(node.right);
    } else {
      once = once && !seen[node.right];
      seen[node.right] = true;
    }
  }
  nodes_[sum].complete = once ? 1 : 0;
  return once;
}

}  // namespace tutti::algorithms
