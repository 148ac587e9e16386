#include "topology/graph.h"

#include <algorithm>
#include <charconv>

#include <fmt/format.h>

namespace tutti::topology {

std::string to_string(const PciAddress& a) {
  return fmt::format("{:04x}:{:02x}:{:02x}.{:x}", a.domain, a.bus, a.device, a.function);
}

std::optional<PciAddress> parse_pci_address(const std::string& text) {
  // [domain:]bus:device.function, hexadecimal.
  std::uint32_t field[4] = {};
  const bool with_domain = std::count(text.begin(), text.end(), ':') == 2;
  const char* at = text.data();
  const char* const end = at + text.size();
  for (int i = with_domain ? 0 : 1; i < 4; ++i) {
    const auto [rest, error] = std::from_chars(at, end, field[i], 16);
    if (error != std::errc() || rest == at) return std::nullopt;
    at = rest;
    if (i == 3) break;
    if (at == end || *at != (i == 2 ? '.' : ':')) return std::nullopt;
    ++at;
  }
  if (at != end || field[1] > 0xff || field[2] > 0x1f || field[3] > 7) return std::nullopt;
  return PciAddress{field[0], std::uint8_t(field[1]), std::uint8_t(field[2]), std::uint8_t(field[3])};
}

void CpuSet::insert(int first, int last) {
  if (last < first) return;
  if (ranges_.empty() || first - 1 > ranges_.back().second) {       // the usual case: ascending
    ranges_.emplace_back(first, last);
    return;
  }
  std::vector<std::pair<int, int>> out;
  for (const auto& r : ranges_) {
    if (r.second + 1 < first || last + 1 < r.first) {
      out.push_back(r);
    } else {
      first = std::min(first, r.first);
      last = std::max(last, r.second);
    }
  }
  out.emplace_back(first, last);
  std::sort(out.begin(), out.end());
  ranges_ = std::move(out);
}

int CpuSet::count() const {
  int n = 0;
  for (const auto& [first, last] : ranges_) n += last - first + 1;
  return n;
}

bool CpuSet::contains(int cpu) const {
  return std::any_of(ranges_.begin(), ranges_.end(),
                     [cpu](const auto& r) { return r.first <= cpu && cpu <= r.second; });
}

bool CpuSet::intersects(const CpuSet& other) const {
  return std::any_of(ranges_.begin(), ranges_.end(), [&other](const auto& r) {
    return std::any_of(other.ranges_.begin(), other.ranges_.end(),
                       [&r](const auto& o) { return r.first <= o.second && o.first <= r.second; });
  });
}

std::string CpuSet::to_string() const {
  std::string out;
  for (const auto& [first, last] : ranges_)
    out += fmt::format("{}{}", out.empty() ? "" : ",",
                       first == last ? fmt::format("{}", first) : fmt::format("{}-{}", first, last));
  return out;
}

std::optional<CpuSet> parse_cpu_list(const std::string& text) {
  const auto number = [](const std::string& part) -> std::optional<int> {
    int value = -1;
    const auto [end, error] = std::from_chars(part.data(), part.data() + part.size(), value);
    const bool good = error == std::errc() && end == part.data() + part.size() && value >= 0 && value < kMaxCpu;
    return good ? std::optional(value) : std::nullopt;
  };
  CpuSet cpus;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t comma = std::min(text.find(',', at), text.size());
    const std::string part = text.substr(at, comma - at);
    const std::size_t dash = part.find('-');
    const auto first = number(part.substr(0, dash));
    const auto last = dash == std::string::npos ? first : number(part.substr(dash + 1));
    if (!first || !last || *last < *first) return std::nullopt;
    cpus.insert(*first, *last);
    at = comma + 1;
  }
  return text.empty() || text.back() != ',' ? std::optional(cpus) : std::nullopt;
}

std::vector<int> Graph::all(VertexKind kind) const {
  std::vector<int> out;
  for (std::size_t i = 0; i < vertices.size(); ++i)
    if (vertices[i].kind == kind) out.push_back(int(i));
  std::stable_sort(out.begin(), out.end(),
                   [this](int a, int b) { return vertices[std::size_t(a)].index < vertices[std::size_t(b)].index; });
  return out;
}

int Graph::ancestor(int vertex, VertexKind kind) const {
  for (int v = vertex; v >= 0; v = vertices[std::size_t(v)].parent)
    if (vertices[std::size_t(v)].kind == kind) return v;
  return -1;
}

}  // namespace tutti::topology
