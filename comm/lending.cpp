#include "comm/lending.h"

#include <algorithm>

namespace tutti::comm {
namespace {

constexpr std::uint64_t kNever = ~std::uint64_t(0);
constexpr std::uint64_t kPairsFrom = (64 << 10) + 1;   // a smaller send ends without its receiver, over any wire

}  // namespace

// Only over shared memory; checksums are made by who copies.
bool may_lend(const Settings& settings) {
  return settings.cma != "0" && !settings.check && (settings.transport == "auto" || settings.transport == "shm");
}

std::optional<std::uint64_t> lending_pays_from(const Settings& settings, const Prices& prices) {
  return !may_lend(settings) ? std::nullopt : settings.cma_threshold ? settings.cma_threshold : prices.lend_from;
}

Lending lending_of(const Program& program, const Settings& settings, const Prices& prices) {
  if (algorithms::is_reduction(program.request.collective)) return {};      // what is added is taken as it comes
  const std::uint64_t from = lending_pays_from(settings, prices).value_or(kNever);
  const bool receives = std::any_of(program.arrivals.begin(), program.arrivals.end(), [](const auto& lane) { return !lane.empty(); });
  if (receives) return {from, kNever};
  return from > kCachedBytes ? Lending{} : Lending{2 * from, kCachedBytes / 2};      // who receives nothing has the time to copy, too
}

Lending lending_of_pairs(const Settings& settings, const Prices& prices) { return {std::max(lending_pays_from(settings, prices).value_or(kNever), kPairsFrom), kNever}; }

}  // namespace tutti::comm
