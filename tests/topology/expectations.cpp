#include "tests/topology/expectations.h"

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <set>
#include <sstream>

#include "topology/answers.h"
#include "topology/describe.h"

namespace tutti::topology::test {
namespace {

using nlohmann::json;

// What the file's author says of it; nothing to compute.
const std::set<std::string> kProse = {
    "note", "socket_basis", "gpu_order", "groups_omitted", "load_error_with_hwloc_2", "with_hwloc_3"};
const std::set<std::string> kRings = {"ring", "ring_by_labels"};
// Lists whose order has a meaning; others are sets.
const std::set<std::string> kSequences = {"gpu_busid",  "gpu_numa",         "gpu_socket",
                                          "gpu_pci_id", "numa_ids_in_file", "net_names",
                                          "nic_names",  "gpu_cpu_affinity", "gpu_numa_affinity"};

json sorted(json value) {
  if (!value.is_array() && !value.is_object()) return value;
  for (json& inner : value) inner = sorted(std::move(inner));
  if (value.is_array()) std::sort(value.begin(), value.end());
  return value;
}

// Hops of a ring of GPU numbers between different entries of `place`.
int crossings(const json& ring, const std::vector<int>& place, const std::vector<int>& numbers) {
  const auto at = [&](std::size_t i) {
    const auto found = std::find(numbers.begin(), numbers.end(), ring[i % ring.size()].get<int>());
    return place.at(std::size_t(found - numbers.begin()));
  };
  int count = 0;
  for (std::size_t i = 0; i < ring.size() && ring.size() > 1; ++i) count += at(i) != at(i + 1) ? 1 : 0;
  return count;
}

bool mentions(const std::vector<std::string>& lines, const std::string& text) {
  return std::any_of(lines.begin(), lines.end(),
                     [&](const std::string& line) { return line.find(text) != std::string::npos; });
}

// Both rings reach all GPUs, and ours is no worse: between packages and NUMA nodes, or by labels.
std::string ring_difference(const Graph& graph, const std::string& key, const json& got, const json& expected) {
  if (sorted(got) != sorted(expected)) return key + ": " + got.dump() + " reaches other GPUs than " + expected.dump();
  if (key == "ring_by_labels") return "";  // what it costs is compared as min_sys_label_hops_in_ring
  std::vector<int> package, numa, numbers;
  for (const int gpu : graph.all(VertexKind::gpu)) {
    package.push_back(package_of(graph, gpu));
    numa.push_back(numa_of(graph, gpu));
    numbers.push_back(graph.vertices[std::size_t(gpu)].index);
  }
  const auto cost = [&](const json& ring) {
    return std::pair(crossings(ring, package, numbers), crossings(ring, numa, numbers));
  };
  return cost(got) <= cost(expected) ? "" : key + ": " + got.dump() + " crosses more than " + expected.dump();
}

std::string difference(const Graph& graph, const json& got, const std::string& key, const json& expected) {
  if (kProse.count(key) != 0) return "";
  if (key == "links_to_itself") {
    for (const json& gpu : expected)
      if (!mentions(graph.distrusted, "GPU " + gpu.dump() + ": "))
        return key + ": not distrusted for GPU " + gpu.dump();
    return "";
  }
  if (key == "note_unknown_class")
    return mentions(graph.notes, "cannot tell GPUs from NICs") ? "" : key + ": not noted";
  if (got.count(key) == 0) return expected.empty() ? "" : key + ": missing, expected " + expected.dump();
  if (kRings.count(key) != 0) return ring_difference(graph, key, got[key], expected);
  const bool same = kSequences.count(key) != 0 ? got[key] == expected : sorted(got[key]) == sorted(expected);
  return same ? "" : key + ": " + got[key].dump() + ", expected " + expected.dump();
}

}  // namespace

std::filesystem::path corpus() {
  const char* const set = std::getenv("TUTTI_TOPOLOGY_CORPUS");
  const std::filesystem::path folder =
      set != nullptr ? std::filesystem::path(set) : std::filesystem::path(TUTTI_SOURCE_DIR) / "../shared/topology";
  std::error_code ignored;
  return std::filesystem::is_directory(folder, ignored) ? folder : std::filesystem::path();
}

std::vector<std::filesystem::path> files_in(const std::filesystem::path& folder, const std::string& extension) {
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    if (name.size() > extension.size() &&
        name.compare(name.size() - extension.size(), extension.size(), extension) == 0)
      files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  return files;
}

std::string read_text(const std::filesystem::path& file) {
  std::ifstream in(file, std::ios::binary);
  std::ostringstream out;
  out << in.rdbuf();
  return out.str();
}

nlohmann::json expectation_of(const std::filesystem::path& file) {
  std::filesystem::path beside = file;
  return json::parse(read_text(beside.replace_extension(".expect.json")), nullptr, false);
}

std::vector<std::string> differences(const Graph& graph, const nlohmann::json& expected) {
  std::vector<std::string> lines;
  const json got = describe(graph);
  for (const auto& [key, value] : expected.items())
    if (std::string line = difference(graph, got, key, value); !line.empty()) lines.push_back(std::move(line));
  // Groups that the author says cannot be formed: none, or the better answer that NUMA affinity gives.
  if (expected.count("groups_omitted") != 0 && got.count("groups") != 0 &&
      got["groups"] != got.value("groups_by_numa", json()))
    lines.push_back("groups: " + got["groups"].dump() + ", expected none");
  return lines;
}

}  // namespace tutti::topology::test
