#pragma once
// Who owns which part of each unit: a run of whole blocks of kBlock numbers, in the order of ranks, as even as blocks allow.
#include <cstddef>
#include <vector>

#include "trainer/layout.h"

namespace tutti::trainer {

struct Share {
  std::size_t begin, count;       // from the unit's begin
};

class Shares {
 public:
  // With one owner every rank owns everything: plain data parallelism.
  Shares(const Layout& layout, int owners, int me);
  int owners() const { return owners_; }
  Share of(std::size_t unit, int owner) const;
  Share mine(std::size_t unit) const { return of(unit, me_); }
  // One an owner: of the unit, or of its numbers [begin, end).
  std::vector<std::size_t> counts(std::size_t unit) const { return counts(unit, 0, layout_.units()[unit].count); }
  std::vector<std::size_t> counts(std::size_t unit, std::size_t begin, std::size_t end) const;
  std::size_t owned() const;                                    // numbers of this rank, of all units

 private:
  const Layout& layout_;
  const int owners_, me_;
};

}  // namespace tutti::trainer
