// Graphs that come by way of libhwloc: this machine, snapshots of /sys, synthetic ones.
#include <fmt/format.h>
#include <sched.h>
#include <algorithm>
#include <filesystem>
#include <memory>

#include "topology/hwloc_load.h"
#include "topology/hwloc_object.h"
#include "topology/nvml_links.h"
#include "topology/read.h"
#include "topology/sysfs_figures.h"

namespace tutti::topology {
namespace {

// The CPUs that this thread's affinity names; empty: the kernel does not tell.
HwlocBits affinity() {
  HwlocBits cpus;
  for (int size = 1024; size <= kMaxHwlocIndex; size *= 2) {  // the kernel refuses masks smaller than its own
    cpu_set_t* const set = CPU_ALLOC(std::size_t(size));
    const std::size_t bytes = CPU_ALLOC_SIZE(std::size_t(size));
    const bool ok = set != nullptr && sched_getaffinity(0, bytes, set) == 0;
    for (int cpu = 0; ok && cpu < size; ++cpu)
      if (CPU_ISSET_S(std::size_t(cpu), bytes, set)) cpus.insert(cpu);
    CPU_FREE(set);
    if (ok) break;
  }
  return cpus;
}

void keep_affinity(HwlocTree& tree) {
  const HwlocBits own = affinity();
  HwlocBits both = tree.root.cpus;
  both.keep(own);
  if (both.empty() || both == tree.root.cpus) return;
  tree.notes.push_back(fmt::format("affinity: CPUs {} of {} may be used", to_cpu_set(both).to_string(),
                                   to_cpu_set(tree.root.cpus).to_string()));
  restrict_to(tree, both);
}

// The folder with sys/ in it: the one named, or the only one inside of it (archives wrap their files in a folder).
Result<std::string> snapshot_root(const std::string& folder) {
  namespace fs = std::filesystem;
  std::error_code error;
  const auto holds_sys = [&error](const fs::path& path) { return fs::is_directory(path / "sys", error); };
  if (holds_sys(folder)) return folder;
  std::vector<std::string> found;
  for (const auto& entry : fs::directory_iterator(folder, error))
    if (entry.is_directory(error) && holds_sys(entry.path())) found.push_back(entry.path().string());
  if (found.size() == 1) return found[0];
  return Status(Code::invalid_argument,
                fmt::format("{}: expected a snapshot of /sys, that is a folder with sys/ in it, found {}", folder,
                            found.empty() ? "none" : fmt::format("{}", found.size())));
}

}  // namespace

Result<Graph> read_live() {
  const Result<std::string> xml = hwloc_xml_of_this_machine();
  if (!xml) return xml.status();
  Result<HwlocTree> tree = parse_hwloc_xml(*xml, "hwloc");
  if (!tree)
    return Status(Code::unsupported, "what hwloc says of this machine cannot be read: " + tree.status().text());
  keep_affinity(*tree);
  Graph graph = build_graph(std::move(*tree), "live", "hwloc");
  add_sysfs_figures(graph, "");
  if (const std::optional<NvmlFunctions> nvml = open_nvml()) {
    const Result<std::vector<NvmlDevice>> devices = read_nvml(*nvml);
    if (devices) add_nvml(graph, *devices);
    if (!devices) graph.notes.push_back(devices.status().text());
  }
  return graph;
}

Result<Graph> read_synthetic(const std::string& text, const std::string& name) {
  const Result<std::string> xml = hwloc_xml_of_synthetic(text);
  if (!xml) return xml.status();
  Result<HwlocTree> tree = parse_hwloc_xml(*xml, name);
  if (!tree) return tree.status();
  return build_graph(std::move(*tree), name, "synthetic");
}

Result<Graph> read_sysfs(const std::string& folder) {
  const Result<std::string> root = snapshot_root(folder);
  if (!root) return root.status();
  const Result<std::string> xml = hwloc_xml_of_sysfs(*root);
  if (!xml) return xml.status();
  Result<HwlocTree> tree = parse_hwloc_xml(*xml, folder);
  if (!tree) return tree.status();
  Graph graph = build_graph(std::move(*tree), folder, "fsroot");
  add_sysfs_figures(graph, *root);
  return graph;
}

}  // namespace tutti::topology
