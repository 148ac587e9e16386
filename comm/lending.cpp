#include "comm/lending.h"

#include <algorithm>

namespace tutti::comm {
namespace {

constexpr std::uint64_t kNever = ~std::uint64_t(0);
constexpr std::uint64_t kPairsFrom = (64 << 10) + 1;   // a smaller send ends without its receiver, over any wire

std::uint64_t pays_from(const Settings& settings, const Prices& prices) {
  return (settings.cma_threshold ? settings.cma_threshold : prices.lend_from).value_or(kNever);
}

}  // namespace

Lending lending_of(const Program& program, const Settings& settings, const Prices& prices) {
  if (algorithms::is_reduction(program.request.collective)) return {};      // what is added is taken as it comes
  const std::uint64_t from = pays_from(settings, prices);
  const bool receives = std::any_of(program.arrivals.begin(), program.arrivals.end(), [](const auto& lane) { return !lane.empty(); });
  if (receives || from > kCachedBytes) return {from, kNever};
  return {2 * from, kCachedBytes / 2};           // who receives nothing has the time to copy while the other one does
}

Lending lending_of_pairs(const Settings& settings, const Prices& prices) { return {std::max(pays_from(settings, prices), kPairsFrom), kNever}; }

}  // namespace tutti::comm
