#include "tools/topo_tree.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <tuple>

#include "tools/text_block.h"
#include "tools/topo_outline.h"

namespace tutti::tools {
namespace {

using topology::Figure;
using topology::Graph;
using topology::Link;
using topology::LinkKind;
using topology::Vertex;
using topology::VertexKind;

constexpr std::size_t kMostCpuText = 32;  // columns of a list of CPUs
constexpr std::size_t kMostPairs = 24;    // pairs of one kind of link, named one by one

const Vertex& at(const Graph& graph, int vertex) { return graph.vertices[std::size_t(vertex)]; }

std::string joined(const std::vector<std::string>& parts) {
  std::vector<std::string> some;
  for (const std::string& part : parts)
    if (!part.empty()) some.push_back(part);
  return fmt::format("{}", fmt::join(some, ", "));
}

std::string cpus_text(const topology::CpuSet& cpus) {
  if (cpus.empty()) return "";
  const std::string list = cpus.to_string();
  return (cpus.count() == 1 ? "CPU " : "CPUs ") +
         (list.size() <= kMostCpuText ? list : list.substr(0, list.rfind(',', kMostCpuText) + 1) + "…");
}

// The model of all vertices of a kind: told once, with their number.
std::string common_model(const Graph& graph, VertexKind kind) {
  std::string common;
  for (const Vertex& v : graph.vertices) {
    if (v.kind != kind) continue;
    if (model(v).empty() || (!common.empty() && model(v) != common)) return "";
    common = model(v);
  }
  return common;
}

class Tree {
 public:
  Tree(const Graph& graph, Footnotes& notes) : graph_(graph), notes_(notes) {}

  std::string text() {
    const OutlineNode root = outline(graph_);
    if (root.vertex < 0) return "";
    std::string out = wrapped("machine: " + machine_text(graph_, true), "", "  ");
    for (std::size_t i = 0; i < root.children.size(); ++i)
      add(out, root.children[i], "", i + 1 == root.children.size());
    return out;
  }

 private:
  void add(std::string& out, const OutlineNode& node, const std::string& prefix, bool last) {
    const std::string below = prefix + (last ? "   " : "│  ");
    out += wrapped(line(node), prefix + (last ? "└─ " : "├─ "), below + (node.children.empty() ? "  " : "│ "));
    for (std::size_t i = 0; i < node.children.size(); ++i)
      add(out, node.children[i], below, i + 1 == node.children.size());
  }

  std::string line(const OutlineNode& node) {
    const Vertex& v = at(graph_, node.vertex);
    std::string name = title(graph_, node.vertex), rest;
    switch (v.kind) {
      case VertexKind::package:
        rest = joined({common_model(graph_, v.kind).empty() ? model(v) : "",
                       graph_.ancestor(node.vertex, VertexKind::numa) >= 0 ? contents_text(graph_, node.vertex) : ""});
        break;
      case VertexKind::numa: rest = contents_text(graph_, node.vertex); break;
      case VertexKind::nic: name = name.rfind("NIC", 0) == 0 ? name : "NIC " + name; break;
      case VertexKind::accelerator: name = "accelerator " + name; break;
      case VertexKind::gpu_switch:
        name = node.more.empty() ? "GPU switch " + name : counted(node.more.size() + 1, "GPU switch");
        break;
      default: break;
    }
    if (v.kind >= VertexKind::host_bridge) rest = device_text(node);
    if (!node.more.empty() && v.kind != VertexKind::gpu_switch)
      rest = joined({rest, fmt::format("and {} more like it", node.more.size())});
    return rest.empty() ? name : name + ": " + rest;
  }

  // Model, bus id, speed and way of a device or bridge.
  std::string device_text(const OutlineNode& node) {
    const Vertex& v = at(graph_, node.vertex);
    const bool bridge = v.kind == VertexKind::pci_bridge || v.kind == VertexKind::host_bridge;
    const std::string bus = bus_id(v);
    std::vector<std::string> parts;
    if (common_model(graph_, v.kind).empty()) parts.push_back(model(v));
    if (!bridge && title(graph_, node.vertex) != bus && node.more.empty()) parts.push_back(bus);
    if (v.logical_devices > 1) parts.push_back(counted(std::size_t(v.logical_devices), "logical device"));
    parts.push_back(notes_.rate(node.speed));
    std::vector<std::string> way;
    for (const int b : node.via)
      if (at(graph_, b).pci) way.push_back(bus_id(at(graph_, b)));
    if (!way.empty() && node.more.empty()) parts.push_back(fmt::format("via{}{}", kNoBreak, fmt::join(way, " > ")));
    if (v.kind == VertexKind::nic)
      if (const std::string speed = notes_.rate(port_speed(graph_, node.vertex)); !speed.empty())
        parts.push_back("port" + (kNoBreak + speed));
    return joined(parts);
  }

  const Graph& graph_;
  Footnotes& notes_;
};

const char* name_of(LinkKind kind) {
  switch (kind) {
    case LinkKind::nvlink: return "NVLink";
    case LinkKind::xgmi: return "xGMI";
    case LinkKind::socket: return "socket link";
    case LinkKind::pci: return "PCI";
    case LinkKind::network: return "network";
    case LinkKind::memory: break;
  }
  return "memory";
}

// What the figures of two links have in common when they may share a line.
struct Kind {
  LinkKind link;
  VertexKind ends;
  bool to_switch;
  int count;
  double bandwidth, latency;
  auto operator<=>(const Kind&) const = default;
};

struct Alike {
  Figure bandwidth, latency;
  std::vector<std::pair<int, int>> pairs;  // of a GPU and a switch: the GPU and -1
};

// Links across the tree by likeness, those of a GPU to all switches together.
std::map<Kind, Alike> links_by_kind(const Graph& graph) {
  std::map<Kind, Alike> out;
  std::map<std::pair<LinkKind, int>, Link> to_switches;
  const auto add = [&](const Link& link, bool to_switch) {
    Alike& alike =
        out[{link.kind, at(graph, link.a).kind, to_switch, link.count, link.bandwidth.value, link.latency.value}];
    alike.bandwidth = link.bandwidth;
    alike.latency = link.latency;
    alike.pairs.emplace_back(link.a, to_switch ? -1 : link.b);
  };
  for (Link link : graph.links) {
    if (link.a < 0 || link.kind == LinkKind::pci || link.kind == LinkKind::network) continue;
    if (link.b >= 0 && at(graph, link.a).kind == VertexKind::gpu_switch) std::swap(link.a, link.b);
    if (link.b >= 0 && at(graph, link.b).kind != VertexKind::gpu_switch) {
      add(link, false);
    } else if (const auto [found, is_new] = to_switches.emplace(std::pair(link.kind, link.a), link); !is_new) {
      found->second.count += link.count;
      found->second.bandwidth.value += link.bandwidth.value;
    }
  }
  for (const auto& [key, link] : to_switches) add(link, true);
  return out;
}

std::string number_of(const Graph& graph, int vertex) {
  const Vertex& v = at(graph, vertex);
  return std::to_string(v.kind == VertexKind::numa ? v.os_index : v.index);
}

std::string noun_of(const Graph& graph, int vertex) {
  switch (at(graph, vertex).kind) {
    case VertexKind::gpu: return "GPU";
    case VertexKind::package: return "package";
    case VertexKind::numa: return "NUMA node";
    default: return title(graph, vertex);
  }
}

std::string pairs_text(const Graph& graph, const Alike& alike, bool to_switch) {
  const int first = alike.pairs[0].first;
  const std::string noun = noun_of(graph, first);
  std::vector<std::string> names;
  for (const auto& [a, b] : alike.pairs) {
    const bool same_kind = b >= 0 && at(graph, a).kind == at(graph, b).kind;
    names.push_back(to_switch   ? number_of(graph, a)
                    : same_kind ? number_of(graph, a) + "-" + number_of(graph, b)
                                : number_of(graph, a) + " to " + noun_of(graph, b) + " " + number_of(graph, b));
  }
  const std::size_t all = graph.all(at(graph, first).kind).size(), count = names.size();
  if (to_switch)
    return count == all ? fmt::format("all {} {}s to GPU switches", all, noun)
                        : fmt::format("{} {} to GPU switches", noun, fmt::join(names, " "));
  if (all > 3 && count == all * (all - 1) / 2) return fmt::format("between all {} {}s", all, noun);
  if (count > kMostPairs) {
    names.resize(kMostPairs);
    names.push_back(fmt::format("and {} more pairs", count - kMostPairs));
  }
  return fmt::format("{} {}", noun, fmt::join(names, " "));
}

}  // namespace

std::string counted(std::size_t count, const std::string& noun) {
  const bool hiss = !noun.empty() && noun.back() == 'h';  // switch
  return fmt::format("{} {}{}", count, noun, count == 1 ? "" : hiss ? "es" : "s");
}

std::string machine_text(const Graph& graph, bool models) {
  std::vector<std::string> parts;
  const auto count = [&](VertexKind kind, const char* noun) {
    const std::size_t n = graph.all(kind).size();
    const std::string what = models ? common_model(graph, kind) : "";
    if (n > 0) parts.push_back(counted(n, noun) + (what.empty() ? "" : " (" + what + ")"));
  };
  count(VertexKind::package, "package");
  count(VertexKind::numa, "NUMA node");
  const Inside in = inside(graph, 0);
  if (in.cores > 0) parts.push_back(counted(std::size_t(in.cores), "core"));
  if (in.pus > in.cores) parts.push_back(counted(std::size_t(in.pus), "PU"));
  count(VertexKind::gpu, "GPU");
  count(VertexKind::nic, "NIC");
  return parts.empty() ? "nothing known of it" : joined(parts);
}

std::string contents_text(const Graph& graph, int vertex) {
  const Vertex& v = at(graph, vertex);
  const Inside in = inside(graph, vertex);
  std::vector<std::string> parts;
  if (v.bytes > 0) parts.push_back(memory_text(v.bytes));
  if (in.cores > 0) parts.push_back(counted(std::size_t(in.cores), "core"));
  if (in.pus > in.cores) parts.push_back(counted(std::size_t(in.pus), "PU"));
  parts.push_back(cpus_text(v.cpus));
  for (const auto& [name, count] : in.caches) parts.push_back(count == 1 ? name : fmt::format("{} x {}", count, name));
  return joined(parts);
}

std::string tree_text(const Graph& graph, Footnotes& notes) { return Tree(graph, notes).text(); }

std::vector<std::string> link_texts(const Graph& graph, Footnotes& notes) {
  std::vector<std::string> out;
  for (const auto& [kind, alike] : links_by_kind(graph)) {
    std::string name = name_of(kind.link);
    if (kind.count > 1) name += fmt::format(" x{}", kind.count);
    const std::string figures = joined({notes.rate(alike.bandwidth), notes.time(alike.latency)});
    out.push_back(pairs_text(graph, alike, kind.to_switch) + ": " + joined({name, figures}));
  }
  return out;
}

}  // namespace tutti::tools
