#pragma once
// Nest: ranks in groups in groups. Level 0 is all ranks as one group, the last level is every rank alone; levels that
// divide nothing are left out. It also says who of a group answers for what: `share` deals the blocks 0..p-1 out to a
// group's members in runs, so at level 0 everybody has the own block and at the last level everybody has all.
#include <string_view>
#include <vector>
#include "algorithms/schedule.h"

namespace tutti::algorithms {

class Nest {
 public:
  struct Run {
    int first = 0, end = 0;
  };

  // Why the request's levels are no nest, or one without a group that is more than one rank and less than all; else
  // empty.
  static std::string_view refusal(const Request& request);

  explicit Nest(const Request& request);   // refusal() must be empty

  int last_level() const { return int(levels_.size()) - 1; }
  int rank_count() const { return int(levels_[0].of.size()); }
  const std::vector<int>& group(int level, int rank) const {
    return members(level, levels_[std::size_t(level)].of[std::size_t(rank)]);
  }
  // The groups of the next level that the group of `rank` consists of, in order of their first ranks.
  std::vector<const std::vector<int>*> parts(int level, int rank) const;

  const std::vector<std::vector<int>>& groups(int level) const { return levels_[std::size_t(level)].members; }
  Run share(int level, int rank) const;                         // of the rank, in its group
  int share_begin(int index, std::size_t size) const;           // of the index-th of `size` members
  int holder(const std::vector<int>& group, int block) const;   // the member whose share has the block
  // The runs into which the shares of a group and of its parts cut the blocks: nobody has half of one.
  std::vector<Run> pieces(int level, int rank) const;
  // Who speaks for a group when the vector stays whole: the root, or the first one.
  static int speaker(const std::vector<int>& group, int root);
  // Groups are runs of ranks, so any choice of one rank a group has the groups' order.
  bool in_order() const;

 private:
  struct Level {
    std::vector<int> of;                     // by rank: its group
    std::vector<std::vector<int>> members;   // by group, ascending
  };
  static Level numbered(const std::vector<int>& group_of);
  const std::vector<int>& members(int level, int group) const {
    return levels_[std::size_t(level)].members[std::size_t(group)];
  }

  std::vector<Level> levels_;
};

}  // namespace tutti::algorithms
