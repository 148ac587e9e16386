#include "tools/topo_outline.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>

#include "tools/text_block.h"
#include "topology/describe.h"

namespace tutti::tools {
namespace {

using topology::Figure;
using topology::Graph;
using topology::LinkKind;
using topology::Vertex;
using topology::VertexKind;

const Vertex& at(const Graph& graph, int vertex) { return graph.vertices[std::size_t(vertex)]; }

bool is_display(const Vertex& v) {
  return v.kind == VertexKind::accelerator && v.pci && v.pci->device_class >> 8 == 0x03;
}

class Outliner {
 public:
  explicit Outliner(const Graph& graph) : graph_(graph), children_(children_of(graph)) {
    for (const topology::Link& link : graph.links) {
      if (link.kind != LinkKind::pci || link.a < 0 || link.b < 0) continue;
      const int below = at(graph, link.a).parent == link.b ? link.a : link.b;
      speed_[below] = link.bandwidth;
    }
  }

  OutlineNode whole() const {
    OutlineNode root;
    if (graph_.vertices.empty()) return root;
    root.vertex = 0;
    for (const int child : children_[0]) add(root, child, {}, {});
    merge(root);
    return root;
  }

 private:
  // Whether there is anything to show at a vertex or below.
  bool shown(int vertex) const {
    switch (at(graph_, vertex).kind) {
      case VertexKind::machine:
      case VertexKind::package:
      case VertexKind::numa:
      case VertexKind::gpu:
      case VertexKind::nic:
      case VertexKind::gpu_switch: return true;
      case VertexKind::accelerator: return !is_display(at(graph_, vertex));
      case VertexKind::pu: return false;
      case VertexKind::cache:
      case VertexKind::core:
      case VertexKind::host_bridge:
      case VertexKind::pci_bridge: break;
    }
    const std::vector<int>& below = children_[std::size_t(vertex)];
    return std::any_of(below.begin(), below.end(), [this](int child) { return shown(child); });
  }

  Figure slower(const Figure& speed, int vertex) const {
    const auto found = speed_.find(vertex);
    if (found == speed_.end() || !found->second.known()) return speed;
    return !speed.known() || found->second.value < speed.value ? found->second : speed;
  }

  void add(OutlineNode& above, int vertex, std::vector<int> via, Figure speed) const {
    if (!shown(vertex)) return;
    const VertexKind kind = at(graph_, vertex).kind;
    std::vector<int> below;
    for (const int child : children_[std::size_t(vertex)])
      if (shown(child)) below.push_back(child);
    speed = slower(speed, vertex);
    const bool bridge = kind == VertexKind::host_bridge || kind == VertexKind::pci_bridge;
    if (kind == VertexKind::cache || kind == VertexKind::core || (bridge && below.size() == 1)) {
      if (bridge) via.push_back(vertex);
      for (const int child : below) add(above, child, via, speed);
      return;
    }
    OutlineNode node;
    node.vertex = vertex;
    node.via = std::move(via);
    node.speed = std::move(speed);
    for (const int child : below) add(node, child, {}, {});
    merge(node);
    above.children.push_back(std::move(node));
  }

  std::size_t most(const OutlineNode& node) const {
    switch (at(graph_, node.vertex).kind) {
      case VertexKind::gpu_switch: return 1;
      case VertexKind::nic: return kMostNics;
      case VertexKind::package:
      case VertexKind::numa: return kMostPlaces;
      default: return graph_.vertices.size();
    }
  }

  bool has_device(const OutlineNode& node) const {
    const VertexKind kind = at(graph_, node.vertex).kind;
    if (kind != VertexKind::package && kind != VertexKind::numa) return true;
    return std::any_of(node.children.begin(), node.children.end(),
                       [this](const OutlineNode& n) { return has_device(n); });
  }

  // Of each kind, those beyond the most become the last one's `more`.
  void merge(OutlineNode& parent) const {
    std::map<VertexKind, std::size_t> kept;
    std::map<VertexKind, std::size_t> last;  // positions in `out`
    std::vector<OutlineNode> out;
    for (OutlineNode& node : parent.children) {
      const VertexKind kind = at(graph_, node.vertex).kind;
      const bool place = kind == VertexKind::package || kind == VertexKind::numa;
      if (kept[kind] >= most(node) && (place ? !has_device(node) : node.children.empty())) {
        out[last[kind]].more.push_back(node.vertex);
        continue;
      }
      if (place && has_device(node)) {
        out.push_back(std::move(node));
        continue;
      }
      ++kept[kind];
      last[kind] = out.size();
      out.push_back(std::move(node));
    }
    parent.children = std::move(out);
  }

  const Graph& graph_;
  std::vector<std::vector<int>> children_;
  std::map<int, Figure> speed_;  // of the link to the parent
};

}  // namespace

OutlineNode outline(const Graph& graph) { return Outliner(graph).whole(); }

std::vector<std::string> displays(const Graph& graph) {
  std::vector<std::string> out;
  for (const int v : graph.all(VertexKind::accelerator))
    if (is_display(at(graph, v))) out.push_back(title(graph, v));
  return out;
}

Inside inside(const Graph& graph, int vertex) {
  Inside out;
  std::vector<bool> within(graph.vertices.size());
  std::map<std::string, int> caches;
  std::string last;  // "L3"
  for (std::size_t v = std::size_t(vertex); v < graph.vertices.size(); ++v) {
    const Vertex& x = graph.vertices[v];
    within[v] = int(v) == vertex || (x.parent >= 0 && within[std::size_t(x.parent)]);
    if (!within[v]) continue;
    out.cores += x.kind == VertexKind::core;
    out.pus += x.kind == VertexKind::pu;
    if (x.kind != VertexKind::cache) continue;
    ++caches[x.name];
    last = std::max(last, x.name.substr(0, x.name.find(' ')));
  }
  for (const auto& [name, count] : caches)
    if (name.substr(0, name.find(' ')) == last) out.caches.emplace_back(printable(name), count);
  return out;
}

std::vector<std::vector<int>> children_of(const Graph& graph) {
  std::vector<std::vector<int>> out(graph.vertices.size());
  for (std::size_t v = 0; v < graph.vertices.size(); ++v)
    if (graph.vertices[v].parent >= 0) out[std::size_t(graph.vertices[v].parent)].push_back(int(v));
  return out;
}

std::string title(const Graph& graph, int vertex) {
  const Vertex& v = at(graph, vertex);
  if (v.kind == VertexKind::pci_bridge && v.pci) return "bridge " + to_string(v.pci->address);
  if (v.kind != VertexKind::nic) return printable(v.name);
  std::string text = fmt::format("{}", fmt::join(topology::names_of(v), ","));
  if (!v.verbs_names.empty() && !v.net_names.empty()) text += fmt::format(" ({})", fmt::join(v.net_names, ","));
  return printable(text);
}

std::string bus_id(const Vertex& vertex) { return vertex.pci ? to_string(vertex.pci->address) : ""; }

std::string model(const Vertex& vertex) {
  for (const auto& [key, value] : vertex.printed)
    if (key == "GPUModel" || key == "CPUModel" || key == "CPUVendor") return printable(value);
  return "";
}

Figure port_speed(const Graph& graph, int nic) {
  for (const topology::Link& link : graph.links)
    if (link.kind == LinkKind::network && link.a == nic) return link.bandwidth;
  return {};
}

}  // namespace tutti::tools
