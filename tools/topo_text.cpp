#include "tools/topo_text.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "tools/text_block.h"
#include "tools/topo_matrix.h"
#include "tools/topo_outline.h"
#include "tools/topo_ring.h"
#include "tools/topo_tree.h"
#include "tools/topo_trees.h"
#include "topology/answers.h"

namespace tutti::tools {
namespace {

using topology::Graph;
using topology::VertexKind;

constexpr std::size_t kMostOrder = 1000;  // columns of an order or a partition; --json has them whole
constexpr std::size_t kMostRemarks = 24;  // of each list of remarks; --json has them all

std::string section(const std::string& title, const std::string& body) {
  return body.empty() ? "" : fmt::format("\n{}\n{}", title, body);
}

std::string head(const Graph& graph) {
  std::string text = printable(graph.source == "live" ? "this machine" : graph.source) + ": " + printable(graph.format);
  if (!graph.version.empty()) text += " " + printable(graph.version);
  if (graph.truncated) text += ", truncated: nothing is claimed of what is missing";
  return wrapped(text, "", "  ") + '\n';
}

const char* noun_of(const RingChoice& ring) { return ring.kind == VertexKind::gpu ? "GPU" : "NUMA node"; }

std::string partition_text(const RingChoice& ring, const topology::Groups& groups) {
  std::vector<std::string> parts;
  for (const std::vector<int>& group : groups) {
    std::vector<int> numbers;
    for (const int position : group) numbers.push_back(ring.number(position));
    parts.push_back(fmt::format("{{{}}}", fmt::join(numbers, " ")));
  }
  return shortened(fmt::format("{}", fmt::join(parts, " ")), kMostOrder);
}

// The chosen partition, and the others that the tree offers, coarser or finer.
std::string groups_section(const Graph& graph, const RingChoice& ring) {
  if (ring.members.size() < 2) return "";
  std::string out;
  std::vector<std::string> told;
  const auto tell = [&](const char* name, const std::optional<topology::Groups>& groups) {
    if (!groups || groups->size() >= ring.members.size()) return;  // each alone: nothing told
    const std::string text = partition_text(ring, *groups);
    if (std::find(told.begin(), told.end(), text) != told.end()) return;
    told.push_back(text);
    out += wrapped(text, fmt::format("  {:<13}", name), std::string(15, ' '));
  };
  if (ring.kind == VertexKind::numa) {
    tell("package", ring.groups);
    return out;
  }
  if (!ring.groups)
    out += wrapped("none: nearness is not mutual here, or not known", "  nearest      ", std::string(15, ' '));
  tell("nearest", ring.groups);
  if (graph.relations.empty()) {
    tell("switch", topology::groups_at(graph, topology::Level::pci_switch));
    tell("host bridge", topology::groups_at(graph, topology::Level::host_bridge));
  }
  tell("NUMA node", topology::groups_within(graph, VertexKind::numa));
  tell("package", topology::groups_within(graph, VertexKind::package));
  return out;
}

std::string cost_text(const RingChoice& ring, const RingCost& cost) {
  std::vector<std::string> parts;
  if (ring.packages_known) parts.push_back(counted(std::size_t(cost.cross_package), "hop") + " between packages");
  if (ring.numa_known) parts.push_back(fmt::format("{} between NUMA nodes", cost.cross_numa));
  if (ring.labelled) parts.push_back(fmt::format("{} labelled SYS", cost.cross_label));
  return parts.empty() ? "packages and NUMA nodes are not known" : fmt::format("{}", fmt::join(parts, ", "));
}

std::string ring_section(const RingChoice& ring) {
  if (ring.members.size() < 2) return "";
  const auto line = [&ring](const char* name, const RingCost& cost) {
    return wrapped(order_text(ring, cost), fmt::format("  {:<13}", name), std::string(15, ' '));
  };
  return line("chosen", ring.chosen) + line("index order", ring.by_index);
}

std::string names_text(const Graph& graph, const std::vector<int>& nics) {
  std::vector<std::string> names;
  const std::vector<int> all = graph.all(VertexKind::nic);
  for (const int nic : nics) {
    if (names.size() == 8) {
      names.push_back(fmt::format("and {} more", nics.size() - 8));
      break;
    }
    names.push_back(title(graph, all[std::size_t(nic)]));
  }
  return fmt::format("{}", fmt::join(names, ", "));
}

// What is near to each GPU; those with the same answer share a line.
std::vector<std::string> near_gpus(const Graph& graph, const RingChoice& ring) {
  const MatrixLabels labels(graph);
  const auto nearest = topology::nearest_nics(graph), rdma = topology::nearest_rdma_nics(graph),
             of_package = topology::package_nics(graph);
  const std::vector<int> nics = graph.all(VertexKind::nic);
  std::vector<std::string> out;
  for (std::size_t i = 0; i < ring.members.size(); ++i) {
    std::string text = "none near";
    if (!nearest[i].empty())
      text = fmt::format("{} ({})", names_text(graph, nearest[i]),
                         labels.between(ring.members[i], nics[std::size_t(nearest[i][0])]));
    else if (!of_package[i].empty())
      text += "; on its package: " + names_text(graph, of_package[i]);
    if (!rdma[i].empty() && rdma[i] != nearest[i])
      text += fmt::format("; with RDMA: {} ({})", names_text(graph, rdma[i]),
                          labels.between(ring.members[i], nics[std::size_t(rdma[i][0])]));
    out.push_back(text);
  }
  return out;
}

std::vector<std::string> near_nodes(const Graph& graph, const RingChoice& ring) {
  const std::vector<int> nics = graph.all(VertexKind::nic);
  std::vector<std::string> out;
  for (const int node : ring.members) {
    std::vector<int> near;
    for (std::size_t j = 0; j < nics.size(); ++j)
      if (graph.vertices[std::size_t(nics[j])].pci && topology::numa_of(graph, nics[j]) == node) near.push_back(int(j));
    out.push_back(near.empty() ? "none near" : names_text(graph, near));
  }
  return out;
}

std::string nics_section(const Graph& graph, const RingChoice& ring) {
  if (graph.all(VertexKind::nic).empty()) return "";
  const std::vector<std::string> near = ring.kind == VertexKind::gpu ? near_gpus(graph, ring) : near_nodes(graph, ring);
  std::vector<std::pair<std::string, std::vector<int>>> lines;
  for (std::size_t i = 0; i < near.size(); ++i) {
    auto found = std::find_if(lines.begin(), lines.end(), [&](const auto& line) { return line.first == near[i]; });
    if (found == lines.end()) found = lines.insert(found, {near[i], {}});
    found->second.push_back(ring.number(int(i)));
  }
  std::string out;
  for (const auto& [text, numbers] : lines)
    out += wrapped(fmt::format("{} {}: {}", noun_of(ring), fmt::join(numbers, " "), text), "  ", "      ");
  return out;
}

std::string remarks(const std::vector<std::string>& list) {
  std::string out;
  for (std::size_t i = 0; i < std::min(list.size(), kMostRemarks); ++i)
    out += wrapped(printable(list[i]), "  - ", "    ");
  if (list.size() > kMostRemarks)
    out += fmt::format("  - and {} more: --json lists them\n", list.size() - kMostRemarks);
  return out;
}

std::string links_section(const Graph& graph, Footnotes& notes) {
  std::string out;
  for (const std::string& text : link_texts(graph, notes)) out += wrapped(text, "  ", "    ");
  return out;
}

std::string numbered(const std::vector<std::string>& notes) {
  std::string out;
  for (std::size_t i = 0; i < notes.size(); ++i) out += wrapped(notes[i], fmt::format("  [{}] ", i + 1), "      ");
  return out;
}

}  // namespace

std::string groups_text(const RingChoice& ring) { return ring.groups ? partition_text(ring, *ring.groups) : ""; }

std::string order_text(const RingChoice& ring, const RingCost& cost) {
  std::vector<int> numbers;
  for (const int position : cost.order) numbers.push_back(ring.number(position));
  return shortened(fmt::format("{}", fmt::join(numbers, " ")), kMostOrder) + ": " + cost_text(ring, cost);
}

std::string topo_text(const Graph& graph) {
  Footnotes notes;
  const RingChoice ring = choose_ring(graph);
  const std::string of = std::string(" of ") + noun_of(ring) + "s";
  std::string out = head(graph) + tree_text(graph, notes);
  out += section("links", links_section(graph, notes));
  out += section("figures (one direction; of a way through bridges, its slowest link)", numbered(notes.notes()));
  out += section("matrix", matrix_text(graph));
  out += section("groups" + of, groups_section(graph, ring));
  out += section("ring" + of, ring_section(ring));
  if (const auto trees = choose_trees(graph, ring))
    out += section("trees" + of, wrapped(trees_text(ring, *trees), "  ", "    "));
  out += section("nearest NIC", nics_section(graph, ring));
  const std::vector<std::string> hidden = displays(graph);
  std::vector<std::string> told = graph.notes;
  if (!hidden.empty()) told.push_back(fmt::format("not shown, display only: {}", fmt::join(hidden, ", ")));
  out += section("notes", remarks(told));
  return out + section("distrusted", remarks(graph.distrusted));
}

}  // namespace tutti::tools
