// See binding.h.
#include "tools/binding.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <utility>

#include "topology/answers.h"

namespace tutti::tools {
namespace {

using topology::CpuSet;
using topology::Graph;
using topology::VertexKind;

void add(CpuSet& to, const CpuSet& from) {
  for (const auto& [first, last] : from.ranges()) to.insert(first, last);
}

std::vector<int> with_cpus(const Graph& machine, VertexKind kind) {
  std::vector<int> all = machine.all(kind);
  std::erase_if(all, [&](int v) { return machine.vertices[std::size_t(v)].cpus.empty(); });
  return all;
}

// Runs of equal sets: "0-3 on node 0 (CPUs 0-15), 4-7 on node 1 (CPUs 16-31)".
std::string told(const std::vector<CpuSet>& cpus, const std::vector<std::string>& names) {
  std::vector<std::string> parts;
  for (std::size_t first = 0, end = 0; first < cpus.size(); first = end) {
    for (end = first + 1; end < cpus.size() && cpus[end] == cpus[first];) ++end;
    const std::string ranks = end - first == 1 ? fmt::format("{}", first) : fmt::format("{}-{}", first, end - 1);
    parts.push_back(fmt::format("{} on {} (CPUs {})", ranks, names[first], cpus[first].to_string()));
  }
  return fmt::format("local ranks bound: {}; --bind none leaves them free", fmt::join(parts, ", "));
}

Binding on_nodes(const Graph& machine, std::size_t ranks) {
  const std::vector<int> nodes = with_cpus(machine, VertexKind::numa), gpus = machine.all(VertexKind::gpu);
  if (nodes.empty()) return {};
  Binding out;
  std::vector<std::string> names;
  const auto near_gpu = [&](std::size_t rank) {
    const int node = topology::numa_of(machine, gpus[rank]);
    return std::find(nodes.begin(), nodes.end(), node) == nodes.end() ? -1 : node;
  };
  bool by_gpu = gpus.size() >= ranks;
  for (std::size_t r = 0; by_gpu && r < ranks; ++r) by_gpu = near_gpu(r) >= 0;
  for (std::size_t r = 0; r < ranks; ++r) {
    const auto& node = machine.vertices[std::size_t(by_gpu ? near_gpu(r) : nodes[r * nodes.size() / ranks])];
    out.cpus.push_back(node.cpus);
    names.push_back(fmt::format("node {}", node.os_index));
  }
  out.told = told(out.cpus, names);
  return out;
}

Binding on_cores(const Graph& machine, std::size_t ranks) {
  std::vector<int> cores = with_cpus(machine, VertexKind::core);
  if (cores.empty()) cores = with_cpus(machine, VertexKind::pu);
  if (cores.empty()) return {};
  Binding out;
  std::vector<std::string> names;
  for (std::size_t r = 0; r < ranks; ++r) {
    const std::size_t first = r * cores.size() / ranks, end = std::max(first + 1, (r + 1) * cores.size() / ranks);
    CpuSet set;
    for (std::size_t c = first; c < end; ++c) add(set, machine.vertices[std::size_t(cores[c])].cpus);
    names.push_back(end - first == 1 ? fmt::format("core {}", first) : fmt::format("cores {}-{}", first, end - 1));
    out.cpus.push_back(std::move(set));
  }
  out.told = told(out.cpus, names);
  return out;
}

}  // namespace

std::optional<Bind> bind_from(std::string_view text) {
  for (const auto& [name, how] :
       {std::pair{"auto", Bind::automatic}, {"none", Bind::none}, {"numa", Bind::numa}, {"core", Bind::core}})
    if (text == name) return how;
  return std::nullopt;
}

Binding bind_ranks(const Graph& machine, Bind how, int local_ranks) {
  const std::size_t ranks = std::size_t(std::max(0, local_ranks));
  if (ranks == 0 || how == Bind::none) return {};
  if (how == Bind::core) return on_cores(machine, ranks);
  if (how == Bind::automatic && (ranks < 2 || with_cpus(machine, VertexKind::numa).size() < 2)) return {};
  return on_nodes(machine, ranks);
}

int numa_nodes(const std::string& root) {
  int count = 0;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(root + "/sys/devices/system/node", error)) {
    const std::string name = entry.path().filename().string();
    count += name.size() > 4 && name.starts_with("node") && name[4] >= '0' && name[4] <= '9';
  }
  return count;
}

}  // namespace tutti::tools
