#include "trainer/shares.h"

#include <algorithm>

namespace tutti::trainer {

Shares::Shares(const Layout& layout, int owners, int me) : layout_(layout), owners_(owners), me_(owners == 1 ? 0 : me) {}

Share Shares::of(std::size_t unit, int owner) const {
  const std::size_t blocks = layout_.units()[unit].count / kBlock, n = std::size_t(owners_), i = std::size_t(owner);
  const std::size_t first = blocks * i / n, last = blocks * (i + 1) / n;
  return {first * kBlock, (last - first) * kBlock};
}

std::vector<std::size_t> Shares::counts(std::size_t unit, std::size_t begin, std::size_t end) const {
  std::vector<std::size_t> all;
  for (int owner = 0; owner < owners_; ++owner) {
    const Share share = of(unit, owner);
    const std::size_t first = std::max(begin, share.begin), last = std::min(end, share.begin + share.count);
    all.push_back(first < last ? last - first : 0);
  }
  return all;
}

std::size_t Shares::owned() const {
  std::size_t sum = 0;
  for (std::size_t unit = 0; unit < layout_.units().size(); ++unit) sum += mine(unit).count;
  return sum;
}

}  // namespace tutti::trainer
