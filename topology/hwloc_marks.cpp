#include "topology/hwloc_marks.h"

#include <fmt/format.h>
#include <algorithm>
#include <array>
#include <charconv>
#include <map>

namespace tutti::topology {
namespace {

constexpr std::array<const char*, 12> kKinds = {"machine", "package", "numa",        "cache",
                                                "core",    "pu",      "host_bridge", "pci_bridge",
                                                "gpu",     "nic",     "accelerator", "gpu_switch"};
constexpr std::array<const char*, 6> kLinkKinds = {"memory", "pci", "nvlink", "xgmi", "socket", "network"};
constexpr std::array<const char*, 3> kOrigins = {"assumed", "read", "measured"};

constexpr char kVertex[] = "TuttiVertex", kKind[] = "TuttiKind", kIndex[] = "TuttiIndex", kOsIndex[] = "TuttiOsIndex",
               kNuma[] = "TuttiNuma", kName[] = "TuttiName", kPci[] = "TuttiPci", kCpus[] = "TuttiCpus",
               kNet[] = "TuttiNet", kVerbs[] = "TuttiVerbs", kLogical[] = "TuttiLogicalDevices",
               kPrinted[] = "TuttiPrinted", kLink[] = "TuttiLink", kRelation[] = "TuttiRelation", kNote[] = "TuttiNote",
               kDistrusted[] = "TuttiDistrusted", kTruncated[] = "TuttiTruncated", kInvented[] = "TuttiInvented";

template <std::size_t N>
int position(const std::array<const char*, N>& names, const std::string& name) {
  const auto found = std::find(names.begin(), names.end(), name);
  return found == names.end() ? -1 : int(found - names.begin());
}

// Words of a line; the last takes the rest.
std::vector<std::string> words(const std::string& text, std::size_t most) {
  std::vector<std::string> out;
  std::size_t at = 0;
  while (out.size() + 1 < most && at < text.size()) {
    const std::size_t end = std::min(text.find(' ', at), text.size());
    out.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  if (at <= text.size()) out.push_back(text.substr(std::min(at, text.size())));
  return out;
}

int whole(const std::string& text, int otherwise) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size() ? value : otherwise;
}

double real(const std::string& text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size() && value > 0 && value < 1e30 ? value : 0;
}

CpuSet cpu_set(const std::string& text) {
  CpuSet out;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find(',', at), text.size());
    const std::string range = text.substr(at, end - at);
    const std::size_t dash = range.find('-');
    const int first = whole(range.substr(0, dash), -1),
              last = dash == std::string::npos ? first : whole(range.substr(dash + 1), -1);
    if (first >= 0 && last < kMaxHwlocIndex) out.insert(first, last);
    at = end + 1;
  }
  return out;
}

std::string figure_text(const Figure& f) { return fmt::format("{} {}", f.value, kOrigins[std::size_t(f.origin)]); }

Figure figure(const std::string& value, const std::string& origin, const std::string& source) {
  return {real(value), Origin(std::max(0, position(kOrigins, origin))), source};
}

void apply_vertex(const HwlocObject& object, Vertex& v) {
  const auto number = [&object](const char* key, int& out) {
    if (const std::string* text = object.info(key)) out = whole(*text, out);
  };
  number(kIndex, v.index);
  number(kOsIndex, v.os_index);
  number(kNuma, v.numa);
  number(kLogical, v.logical_devices);
  v.logical_devices = std::clamp(v.logical_devices, 1, 1024);
  if (const std::string* text = object.info(kName)) v.name = *text;
  if (const std::string* text = object.info(kCpus)) v.cpus = cpu_set(*text);
  if (const std::string* text = object.info(kPci)) {
    const std::vector<std::string> w = words(*text, 4);
    const std::optional<PciAddress> address = parse_pci_address(w[0]);
    v.pci.reset();
    if (address && w.size() == 4)
      v.pci = PciFunction{*address, std::uint16_t(whole(w[1], 0)), std::uint16_t(whole(w[2], 0)),
                          std::uint16_t(whole(w[3], 0))};
  }
  if (object.info(kPrinted) != nullptr) v.printed.clear();
  for (const auto& [key, text] : object.infos) {
    if (key == kNet) v.net_names.push_back(text);
    if (key == kVerbs) v.verbs_names.push_back(text);
    if (key == kPrinted)
      v.printed.emplace_back(text.substr(0, text.find('=')), text.substr(std::min(text.size(), text.find('=') + 1)));
  }
}

void strip(HwlocObject& object, bool cpus) {
  const auto made_up = [](const HwlocObject& o) { return o.info(kInvented) != nullptr; };
  std::erase_if(object.children, made_up);
  std::erase_if(object.memory, made_up);
  if (cpus) object.cpus = {};
  for (HwlocObject& child : object.children) strip(child, cpus);
  for (HwlocObject& memory : object.memory) strip(memory, cpus);
}

bool has_cpus(const Graph& graph) {
  return std::any_of(graph.vertices.begin(), graph.vertices.end(),
                     [](const Vertex& v) { return v.kind <= VertexKind::pu && !v.cpus.empty(); });
}

}  // namespace

HwlocMarks::Infos HwlocMarks::of_vertex(const Graph& graph, int vertex) {
  const Vertex& v = graph.vertices[std::size_t(vertex)];
  Infos out = {
      {kVertex, std::to_string(vertex)}, {kKind, kKinds[std::size_t(v.kind)]}, {kIndex, std::to_string(v.index)}};
  if (v.kind == VertexKind::pu || v.kind == VertexKind::core || v.kind == VertexKind::cache) return out;
  out.insert(out.end(), {{kOsIndex, std::to_string(v.os_index)}, {kNuma, std::to_string(v.numa)}, {kName, v.name}});
  if (v.pci) {
    out.emplace_back(
        kPci, fmt::format("{} {} {} {}", to_string(v.pci->address), v.pci->device_class, v.pci->vendor, v.pci->device));
  } else if (v.kind > VertexKind::host_bridge) {
    out.emplace_back(kPci, "none");
  }
  if (v.kind >= VertexKind::host_bridge || v.cpus.empty()) out.emplace_back(kCpus, v.cpus.to_string());
  if (!v.pci)
    for (const std::string& name : v.net_names) out.emplace_back(kNet, name);
  if (!v.pci)
    for (const std::string& name : v.verbs_names) out.emplace_back(kVerbs, name);
  if (v.logical_devices != 1) out.emplace_back(kLogical, std::to_string(v.logical_devices));
  for (const auto& [key, text] : v.printed) out.emplace_back(kPrinted, key + "=" + text);
  return out;
}

HwlocMarks::Infos HwlocMarks::of_graph(const Graph& graph) {
  Infos out;
  for (const Link& l : graph.links)
    out.emplace_back(
        kLink, fmt::format("{} {} {} {} {} {} {}|{}", l.a, l.b, kLinkKinds[std::size_t(l.kind)], l.count,
                           figure_text(l.latency), figure_text(l.bandwidth), l.latency.source, l.bandwidth.source));
  for (const Relation& r : graph.relations)
    out.emplace_back(kRelation, fmt::format("{} {} {} {}", r.a, r.b, int(r.level), r.label));
  for (const std::string& note : graph.notes) out.emplace_back(kNote, note);
  for (const std::string& text : graph.distrusted) out.emplace_back(kDistrusted, text);
  if (graph.truncated) out.emplace_back(kTruncated, "1");
  if (!has_cpus(graph)) out.emplace_back(kInvented, "CPUs");
  return out;
}

HwlocMarks::Infos HwlocMarks::invented() { return {{kInvented, "1"}}; }

std::optional<VertexKind> HwlocMarks::kind(const HwlocObject& object) {
  const std::string* text = object.info(kKind);
  const int kind = text ? position(kKinds, *text) : -1;
  const bool device = kind >= int(VertexKind::gpu);
  return device ? std::optional(VertexKind(kind)) : std::nullopt;
}

void HwlocMarks::drop_invented(HwlocObject& root) {
  if (root.info(kVertex) != nullptr) strip(root, root.info(kInvented) != nullptr);
}

bool HwlocMarks::apply(const HwlocObject& root, Graph& graph) const {
  if (root.info(kVertex) == nullptr) return false;
  std::map<int, int> now;  // vertex as written to vertex as read
  for (const auto& [object, vertex] : placed_) {
    if (const std::string* text = object->info(kVertex)) now.emplace(whole(*text, -1), vertex);
    apply_vertex(*object, graph.vertices[std::size_t(vertex)]);
  }
  const auto find = [&now](const std::string& text) {
    const auto found = now.find(whole(text, -2));
    return found == now.end() ? -1 : found->second;
  };
  graph.links.clear();
  graph.distrusted.clear();
  graph.notes.clear();
  int lost = 0;
  for (const auto& [key, text] : root.infos) {
    if (key == kNote) graph.notes.push_back(text);
    if (key == kDistrusted) graph.distrusted.push_back(text);
    if (key == kTruncated) graph.truncated = true;
    if (key == kRelation) {
      const std::vector<std::string> w = words(text, 4);
      const int a = w.size() == 4 ? find(w[0]) : -1, b = w.size() == 4 ? find(w[1]) : -1,
                level = w.size() == 4 ? whole(w[2], -1) : -1;
      if (a >= 0 && b >= 0 && a != b && level >= 0 && level <= int(Level::machine)) {
        graph.relations.push_back({std::min(a, b), std::max(a, b), Level(level), w[3]});
      } else {
        ++lost;
      }
    }
    if (key == kLink) {
      const std::vector<std::string> w = words(text, 9);
      const int a = w.size() == 9 ? find(w[0]) : -1, b = w.size() == 9 ? find(w[1]) : -1,
                kind = w.size() == 9 ? position(kLinkKinds, w[2]) : -1;
      const bool out_of_machine = kind == int(LinkKind::network) && w[1] == "-1";
      if (a < 0 || (b < 0 && !out_of_machine) || kind < 0) {
        ++lost;
        continue;
      }
      const std::size_t bar = std::min(w[8].find('|'), w[8].size());
      graph.links.push_back({a, b, LinkKind(kind), std::max(1, whole(w[3], 1)), figure(w[4], w[5], w[8].substr(0, bar)),
                             figure(w[6], w[7], w[8].substr(std::min(bar + 1, w[8].size())))});
    }
  }
  std::sort(graph.relations.begin(), graph.relations.end(),
            [](const Relation& x, const Relation& y) { return std::pair(x.a, x.b) < std::pair(y.a, y.b); });
  if (lost > 0) graph.distrusted.push_back(fmt::format("{} links or relations name a vertex that is not there", lost));
  return true;
}

}  // namespace tutti::topology
