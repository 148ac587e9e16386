#include "topology/pci_speed.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include <fmt/format.h>

namespace tutti::topology {
namespace {

constexpr double kRates[] = {2.5, 5, 8, 16, 32, 64};
constexpr int kWidths[] = {1, 2, 4, 8, 12, 16, 32};

}  // namespace

std::optional<PciSpeed> parse_pci_speed(const std::string& speed, const std::string& width) {
  PciSpeed out;
  const char* const end = speed.data() + speed.size();
  const auto [rest, error] = std::from_chars(speed.data(), end, out.gigatransfers);
  if (error != std::errc() || std::string(rest, end).rfind(" GT/s", 0) != 0) return std::nullopt;
  const auto [after, wrong] = std::from_chars(width.data(), width.data() + width.size(), out.width);
  if (wrong != std::errc() || after != width.data() + width.size()) return std::nullopt;
  if (std::find(std::begin(kRates), std::end(kRates), out.gigatransfers) == std::end(kRates)) return std::nullopt;
  if (std::find(std::begin(kWidths), std::end(kWidths), out.width) == std::end(kWidths)) return std::nullopt;
  return out;
}

double bytes_per_second(const PciSpeed& speed) {
  // 8b/10b to 5 GT/s, 128b/130b to 32, flits of 242 in 256 bytes at 64 (PCI Express base specification 6.0).
  const double code = speed.gigatransfers <= 5 ? 0.8 : speed.gigatransfers <= 32 ? 128.0 / 130 : 242.0 / 256;
  return speed.gigatransfers * 1e9 / 8 * code * speed.width;
}

PciSpeed nearest_pci_speed(double bytes) {
  PciSpeed best{kRates[0], kWidths[0]};
  for (const int width : kWidths)
    for (const double rate : kRates)
      if (std::abs(bytes_per_second({rate, width}) - bytes) < std::abs(bytes_per_second(best) - bytes))
        best = {rate, width};
  return best;
}

std::string to_string(const PciSpeed& speed) {
  return fmt::format("{:.1f} GT/s x{}", speed.gigatransfers, speed.width);
}

}  // namespace tutti::topology
