#include "tools/topo_matrix.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "tools/text_block.h"
#include "tools/topo_outline.h"
#include "tools/topo_ring.h"
#include "topology/answers.h"

namespace tutti::tools {
namespace {

using topology::Graph;
using topology::Level;
using topology::LinkKind;
using topology::Vertex;
using topology::VertexKind;

const Vertex& at(const Graph& graph, int vertex) { return graph.vertices[std::size_t(vertex)]; }

struct Meaning {
  const char* label;
  const char* text;
};
constexpr Meaning kLegend[] = {
    {"NV#", "# bonded NVLinks, or as many to the same switches"},
    {"XGMI", "xGMI links"},
    {"PIX", "at most one PCI bridge or switch"},
    {"PXB", "several PCI bridges, no host bridge"},
    {"PHB", "a PCI host bridge (the CPU)"},
    {"NODE", "between host bridges of one NUMA node"},
    {"PKG", "between NUMA nodes of one package"},
    {"SYS", "between NUMA nodes"},
    {"SOC", "between NUMA nodes"},
    {"?", "the source does not tell"},
};

struct Row {
  int vertex;
  std::string name;
};

// The NICs that the matrix has room for: all, else those near to a GPU, else the first.
std::vector<int> matrix_nics(const Graph& graph) {
  std::vector<int> all = graph.all(VertexKind::nic);
  all.erase(
      std::remove_if(all.begin(), all.end(), [&graph](int n) { return !at(graph, n).pci && graph.relations.empty(); }),
      all.end());
  if (all.size() <= kMostMatrixNics) return all;
  const std::vector<int> nics = graph.all(VertexKind::nic);
  std::set<int> near;
  for (const std::vector<int>& list : topology::nearest_nics(graph))
    for (const int nic : list) near.insert(nics[std::size_t(nic)]);
  if (!near.empty() && near.size() <= kMostMatrixNics) {
    all.erase(std::remove_if(all.begin(), all.end(), [&near](int n) { return near.count(n) == 0; }), all.end());
    return all;
  }
  all.resize(kMostMatrixNics);
  return all;
}

std::string legend_text(const std::set<std::string>& used) {
  std::string out;
  for (const Meaning& meaning : kLegend) {
    const bool links =
        std::string(meaning.label) == "NV#" &&
        std::any_of(used.begin(), used.end(), [](const std::string& l) { return l.rfind("NV", 0) == 0; });
    if (links || used.count(meaning.label) != 0)
      out += wrapped(meaning.text, fmt::format("  {:<6}", meaning.label), "        ");
  }
  return out;
}

std::string numa_text(const Graph& graph, int vertex) {
  const int node = topology::numa_of(graph, vertex);
  return node >= 0 && at(graph, node).os_index >= 0 ? std::to_string(at(graph, node).os_index) : "-";
}

std::string blocks_text(const Graph& graph, const std::vector<Row>& rows, std::set<std::string>& used) {
  const MatrixLabels labels(graph);
  std::vector<std::vector<std::string>> cells(rows.size());
  std::size_t width = 4, head = 0;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    head = std::max(head, rows[i].name.size());
    for (const Row& other : rows) {
      cells[i].push_back(rows[i].vertex == other.vertex ? "X" : labels.between(rows[i].vertex, other.vertex));
      used.insert(cells[i].back());
      width = std::max({width, columns(cells[i].back()), other.name.size()});
    }
  }
  const std::size_t room = std::max<std::size_t>(1, (kTextColumns - 3 - head) / (width + 2));
  const auto pad = [width](const std::string& text) {
    return "  " + text + std::string(width - std::min(width, columns(text)), ' ');
  };
  const auto end_line = [](std::string line) {
    line.erase(line.find_last_not_of(' ') + 1);
    return line + '\n';
  };
  std::string out;
  for (std::size_t first = 0; first < rows.size(); first += room) {
    std::string line = "  " + std::string(head, ' ');
    const std::size_t end = std::min(first + room, rows.size());
    const bool numa = end == rows.size() && end - first < room && at(graph, rows[0].vertex).kind == VertexKind::gpu;
    for (std::size_t j = first; j < end; ++j) line += pad(rows[j].name);
    if (numa) line += pad("NUMA");
    out += (first > 0 ? "\n" : "") + end_line(line);
    for (std::size_t i = 0; i < rows.size(); ++i) {
      line = fmt::format("  {:<{}}", rows[i].name, head);
      for (std::size_t j = first; j < end; ++j) line += pad(cells[i][j]);
      if (numa) line += pad(numa_text(graph, rows[i].vertex));
      out += end_line(line);
    }
  }
  return out;
}

// In place of a matrix that would fill screens.
std::string left_out(const Graph& graph, const RingChoice& ring) {
  const MatrixLabels labels(graph);
  std::set<std::string> used;
  const std::size_t some = std::min(ring.members.size(), kMostMatrixGpus);
  for (std::size_t i = 0; i < some; ++i)
    for (std::size_t j = 0; j < i; ++j) used.insert(labels.between(ring.members[i], ring.members[j]));
  return fmt::format("  left out, {} rows; labels between them: {}\n", ring.members.size(), fmt::join(used, " ")) +
         legend_text(used);
}

}  // namespace

MatrixLabels::MatrixLabels(const Graph& graph)
    : graph_(graph), links_(graph.vertices.size()), host_bridges_(!graph.all(VertexKind::host_bridge).empty()) {
  const auto add = [this](int from, int to, const topology::Link& link) {
    if (to >= 0 && at(graph_, to).kind == VertexKind::gpu_switch) to = -1;
    for (Linked& linked : links_[std::size_t(from)])
      if (linked.to == to && linked.kind == link.kind) {
        linked.count += link.count;
        return;
      }
    links_[std::size_t(from)].push_back({to, link.kind, link.count});
  };
  for (const topology::Link& link : graph.links) {
    if (link.kind != LinkKind::nvlink && link.kind != LinkKind::xgmi) continue;
    if (link.a >= 0) add(link.a, link.b, link);
    if (link.b >= 0) add(link.b, link.a, link);
  }
}

std::string MatrixLabels::between(int a, int b) const {
  if (a == b) return "X";
  if (!graph_.relations.empty()) {
    for (const topology::Relation& r : graph_.relations)
      if (r.a == std::min(a, b) && r.b == std::max(a, b)) return r.label.empty() ? "?" : printable(r.label);
    return "?";
  }
  const std::string link = of_links(a, b);
  return link.empty() ? of_tree(a, b) : link;
}

std::string MatrixLabels::of_links(int a, int b) const {
  for (const Linked& mine : links_[std::size_t(a)]) {
    if (mine.to == b) return mine.kind == LinkKind::xgmi ? "XGMI" : fmt::format("NV{}", mine.count);
    if (mine.to >= 0) continue;
    for (const Linked& other : links_[std::size_t(b)])
      if (other.to < 0 && other.kind == mine.kind && at(graph_, a).kind == at(graph_, b).kind)
        return fmt::format("NV{}", std::min(mine.count, other.count));
  }
  return "";
}

// hwloc sees a switch as a bridge with a bridge for each port, NCCL's XML as one.
std::string MatrixLabels::of_tree(int a, int b) const {
  const int above = topology::common_ancestor(graph_, a, b);
  const auto numa = [this](int v) { return at(graph_, v).kind == VertexKind::numa; };
  switch (topology::level_between(graph_, a, b)) {
    case Level::same_device: return "PIX";
    case Level::pci_switch:
      return std::max(bridges_below(a, above), bridges_below(b, above)) > (host_bridges_ ? 1 : 0) ? "PXB" : "PIX";
    case Level::host_bridge: return "PHB";
    case Level::numa: return host_bridges_ ? "NODE" : "PHB";
    case Level::package: return numa(a) && numa(b) ? "PKG" : "SYS";
    case Level::machine: break;
  }
  const int node = topology::numa_of(graph_, a);
  return node >= 0 && node == topology::numa_of(graph_, b) ? "NODE" : "SYS";
}

int MatrixLabels::bridges_below(int vertex, int ancestor) const {
  int count = 0;
  for (int v = at(graph_, vertex).parent; v > ancestor; v = at(graph_, v).parent)
    count += at(graph_, v).kind == VertexKind::pci_bridge;
  return count;
}

std::string matrix_text(const Graph& graph) {
  const RingChoice ring = choose_ring(graph);
  const std::vector<int> nics = matrix_nics(graph);
  if (ring.members.size() + nics.size() < 2) return "";
  const std::size_t most = ring.kind == VertexKind::gpu ? kMostMatrixGpus : kMostMatrixNodes;
  if (ring.members.size() > most) return left_out(graph, ring);
  std::vector<Row> rows;
  for (std::size_t i = 0; i < ring.members.size(); ++i)
    rows.push_back(
        {ring.members[i], fmt::format("{}{}", ring.kind == VertexKind::gpu ? "GPU" : "NUMA", ring.number(int(i)))});
  for (std::size_t i = 0; i < nics.size(); ++i) rows.push_back({nics[i], fmt::format("NIC{}", i)});
  std::set<std::string> used;
  std::string out = blocks_text(graph, rows, used) + '\n';
  out += legend_text(used);
  std::string names;
  for (std::size_t i = 0; i < nics.size(); ++i)
    if (const std::string name = fmt::format("NIC{}", i); name != title(graph, nics[i]))
      names += fmt::format(" {}={}", name, title(graph, nics[i]));
  if (!names.empty()) out += wrapped(names, "  ", "  ");
  const auto left = std::size_t(std::count_if(graph.vertices.begin(), graph.vertices.end(),
                                              [](const Vertex& v) { return v.kind == VertexKind::nic; })) -
                    nics.size();
  if (left > 0)
    out += fmt::format("  {} more NIC{} left out: without a PCI device, or not near to a GPU\n", left,
                       left == 1 ? "" : "s");
  return out;
}

}  // namespace tutti::tools
