#pragma once
// Sums: unordered binary trees of additions over (rank, chunk) leaves, each distinct tree once, so that equal numbers
// mean equal trees. No arithmetic happens: it tells who was added to whom, not what came out.
#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

namespace tutti::algorithms {

class Sums {
 public:
  static constexpr std::uint32_t kNothing = 0;   // the value of what was never written

  explicit Sums(int rank_count) : rank_count_(std::uint32_t(rank_count)) { nodes_.push_back({}); }

  std::uint32_t leaf(std::uint32_t rank, std::uint32_t shape);
  std::uint32_t add(std::uint32_t a, std::uint32_t b);
  // schedule.h's balanced tree over the operands in this order.
  std::uint32_t tree(std::span<const std::uint32_t> operands);
  // The canonical tree over all ranks' leaves of this shape.
  std::uint32_t canonical(std::uint32_t shape);
  // Holds exactly one leaf of every rank.
  bool complete(std::uint32_t sum);

 private:
  struct Node {
    std::uint32_t left = 0, right = 0;   // left 0: a leaf of rank `right`
    std::uint32_t leaves = 0;            // saturating
    std::int8_t complete = -1;           // -1: not asked yet
  };
  std::uint32_t intern(std::unordered_map<std::uint64_t, std::uint32_t>& known, std::uint64_t key, const Node& node);

  std::uint32_t rank_count_;
  std::vector<Node> nodes_;
  std::unordered_map<std::uint64_t, std::uint32_t> leaf_of_, sum_of_;
  std::unordered_map<std::uint32_t, std::uint32_t> canonical_of_;
};

}  // namespace tutti::algorithms
