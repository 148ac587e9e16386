#pragma once
// What hierarchical schedules do, counted group by group without making them: a few figures a rank, so that tens of
// thousands of ranks take milliseconds. Tests count the schedules.
#include "algorithms/borders.h"
#include "algorithms/nest.h"

namespace tutti::algorithms {

class NestCount {
 public:
  // Of a request that the hierarchical generator serves. Both must outlive it.
  NestCount(const Request& request, const Nest& nest);

  Cost cost() const;
  std::vector<Border> borders() const { return traffic_.borders(chain_); }

 private:
  struct Longest {
    Hops chain = 0;
    int messages = 0;
    Longest then(int border) const { return {chain + hop_over(border), messages + 1}; }
    void take(const Longest& other);
  };
  using Groups = std::vector<const std::vector<int>*>;

  void count_blocks(int level, const std::vector<int>& group, const Groups& parts);
  void count_vectors(const std::vector<int>& group, const Groups& parts);
  int holder(int level, const std::vector<int>& group, int block) const;
  void sends(int rank, int border, double bytes, int messages);
  Longest chain_of(int level, const std::vector<int>& group) const;
  bool adds_up() const;
  bool spreads() const;

  const Request& request_;
  const Nest& nest_;
  const Groups tops_;   // the outermost groups
  Traffic traffic_;
  Hops chain_ = 0;
  int rounds_ = 0;
  std::vector<double> sent_, written_, reduced_;   // by rank, of n
  std::vector<int> messages_;
};

}  // namespace tutti::algorithms
