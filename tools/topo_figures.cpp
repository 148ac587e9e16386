#include "tools/topo_figures.h"

#include <fmt/format.h>

#include <algorithm>

#include "tools/text_block.h"

namespace tutti::tools {
namespace {

// Three digits, without an exponent.
std::string digits(double value) { return value >= 100 ? fmt::format("{:.0f}", value) : fmt::format("{:.3g}", value); }

}  // namespace

std::string rate_text(double bytes_per_second) {
  if (bytes_per_second < 1e7) return digits(bytes_per_second / 1e6) + std::string(kNoBreak) + "MB/s";
  return digits(bytes_per_second / 1e9) + std::string(kNoBreak) + "GB/s";
}

std::string memory_text(std::uint64_t bytes) {
  const double mib = double(bytes) / (1 << 20);
  return mib < 1024 ? digits(mib) + " MiB" : digits(mib / 1024) + " GiB";
}

std::string time_text(double seconds) {
  return seconds < 1e-6 ? digits(seconds * 1e9) + " ns" : digits(seconds * 1e6) + " us";
}

std::string origin_text(topology::Origin origin) {
  switch (origin) {
    case topology::Origin::measured: return "measured";
    case topology::Origin::read: return "read";
    case topology::Origin::assumed: break;
  }
  return "assumed";
}

std::string Footnotes::mark(const topology::Figure& figure) {
  std::string note = origin_text(figure.origin);
  // A source that already says "assumed for ..." needs no second word.
  note = figure.source.rfind(note, 0) == 0 ? figure.source : figure.source.empty() ? note : note + ": " + figure.source;
  note = printable(note);
  auto found = std::find(notes_.begin(), notes_.end(), note);
  if (found == notes_.end()) found = notes_.insert(found, note);
  return fmt::format("{}[{}]", kNoBreak, found - notes_.begin() + 1);
}

std::string Footnotes::rate(const topology::Figure& figure) {
  return figure.known() ? rate_text(figure.value) + mark(figure) : "";
}

std::string Footnotes::time(const topology::Figure& figure) {
  return figure.known() ? time_text(figure.value) + mark(figure) : "";
}

}  // namespace tutti::tools
