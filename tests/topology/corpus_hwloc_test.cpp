// The hwloc exports and snapshots of the corpus: every key of every expect.json; and each machine written as hwloc XML,
// loaded by libhwloc, written by it and read again gives the same answers.
#include <gtest/gtest.h>
#include <hwloc.h>
#include <algorithm>
#include <map>

#include "tests/topology/expectations.h"
#include "topology/answers.h"
#include "topology/describe.h"
#include "topology/read.h"

namespace tutti::topology::test {
namespace {

namespace fs = std::filesystem;
constexpr char kMissing[] =
    "no topology corpus: TUTTI_TOPOLOGY_CORPUS names no folder, and ../shared/topology is not beside the sources";

std::vector<fs::path> machines() {
  std::vector<fs::path> files = files_in(corpus() / "hwloc", ".xml");
  for (const fs::path& file : files_in(corpus() / "hwloc-fsroot", ".tar.bz2")) files.push_back(file);
  return files;
}

nlohmann::json expected_of(const fs::path& file) {
  const std::string name = file.filename().string();
  return nlohmann::json::parse(
      read_text(file.parent_path() /
                (name.substr(0, name.rfind(file.extension() == ".xml" ? ".xml" : ".tar.bz2")) + ".expect.json")),
      nullptr, false);
}

// Keys that only one file has, about accelerators: computed here, since the library makes no groups of what is no GPU.
void compare_accelerators(const Graph& graph, nlohmann::json& expected) {
  const auto at = [&graph](int v) -> const Vertex& { return graph.vertices[std::size_t(v)]; };
  const auto nearest = [&graph](int from, const std::vector<int>& candidates) {
    std::pair<int, int> best{-1, -1};  // the deepest common ancestor, and with whom
    for (const int c : candidates)
      if (c != from) best = std::max(best, std::pair(common_ancestor(graph, from, c), -c));
    return std::pair(best.first, -best.second);
  };
  std::vector<int> accelerators = graph.all(VertexKind::accelerator);
  std::erase_if(accelerators, [&at](int a) { return at(a).pci->device_class >> 8 == 0x03; });
  std::map<int, nlohmann::json> groups, nics;
  for (const int a : accelerators) {
    const int group = nearest(a, accelerators).first;
    groups[group].push_back(to_string(at(a).pci->address));
    nics[group] = to_string(at(nearest(a, graph.all(VertexKind::nic)).second).pci->address);
  }
  nlohmann::json by_group = nlohmann::json::array(), nearest_nics = nlohmann::json::array();
  for (const auto& [group, members] : groups) {
    by_group.push_back(members);
    nearest_nics.push_back(nics[group]);
  }
  EXPECT_EQ(by_group, expected["accelerator_groups_by_busid"]);
  EXPECT_EQ(nearest_nics, expected["nearest_nic_of_accelerator_group"]);
  expected.erase("accelerator_groups_by_busid");
  expected.erase("nearest_nic_of_accelerator_group");
}

// As another program would: libhwloc reads it and writes it again.
std::string through_libhwloc(const std::string& xml) {
  hwloc_topology_t topology = nullptr;
  std::string out;
  hwloc_topology_init(&topology);
  hwloc_topology_set_io_types_filter(topology, HWLOC_TYPE_FILTER_KEEP_IMPORTANT);
  hwloc_topology_set_type_filter(topology, HWLOC_OBJ_PCI_DEVICE, HWLOC_TYPE_FILTER_KEEP_ALL);  // NVSwitches
  char* text = nullptr;
  int length = 0;
  if (hwloc_topology_set_xmlbuffer(topology, xml.c_str(), int(xml.size()) + 1) == 0 &&
      hwloc_topology_load(topology) == 0 && hwloc_topology_export_xmlbuffer(topology, &text, &length, 0) == 0) {
    out = text;
    hwloc_free_xmlbuffer(topology, text);
  }
  hwloc_topology_destroy(topology);
  return out;
}

// The same graph by the answers that it gives; what a description says depends on the format, too.
void expect_same_answers(const Graph& graph, const std::string& xml, const std::string& name) {
  Result<Graph> again = read_hwloc_xml(xml, name);
  ASSERT_TRUE(again.ok()) << name << ": " << again.status().to_string();
  again->format = graph.format;
  again->version = graph.version;
  const nlohmann::json was = describe(graph), is = describe(*again);
  EXPECT_EQ(was, is) << name << nlohmann::json::diff(was, is).dump(1);
  EXPECT_EQ(again->links.size(), graph.links.size()) << name;
}

TEST(CorpusHwloc, EveryKeyOfEveryFile) {
  if (corpus().empty()) GTEST_SKIP() << kMissing;
  ASSERT_GT(machines().size(), 40u);
  for (const fs::path& file : machines()) {
    nlohmann::json expected = expected_of(file);
    ASSERT_TRUE(expected.is_object()) << file;
    const Result<Graph> graph = read_file(file.string());
    if (expected.value("load_error_with_hwloc_2", false)) {
      ASSERT_FALSE(graph.ok()) << file;
      EXPECT_EQ(graph.status().code(), Code::unsupported);
      EXPECT_NE(graph.status().text().find(file.filename().string() + ":3: hwloc XML version 3.0"), std::string::npos)
          << graph.status().text();
      EXPECT_NE(graph.status().text().find("lstopo"), std::string::npos);
      continue;
    }
    ASSERT_TRUE(graph.ok()) << graph.status().to_string();
    if (expected.count("accelerator_groups_by_busid") != 0) compare_accelerators(*graph, expected);
    for (const std::string& line : differences(*graph, expected)) ADD_FAILURE() << file.filename() << ": " << line;
  }
}

TEST(CorpusHwloc, EveryMachineSurvivesBeingWritten) {
  if (corpus().empty()) GTEST_SKIP() << kMissing;
  std::vector<fs::path> files = files_in(corpus() / "hwloc", ".xml");
  for (const fs::path& file : files_in(corpus() / "nccl", ".xml")) files.push_back(file);
  for (const fs::path& file : files_in(corpus() / "matrix", ".txt")) files.push_back(file);
  int written = 0;
  for (const fs::path& file : files) {
    const Result<Graph> graph = read_file(file.string());
    if (!graph.ok()) continue;  // refused with a reason: the other tests say which may be
    const std::string name = file.filename().string();
    const Result<std::string> xml = write_hwloc_xml(*graph);
    ASSERT_TRUE(xml.ok()) << name << ": " << xml.status().to_string();
    expect_same_answers(*graph, *xml, name);
    const std::string exported = through_libhwloc(*xml);
    ASSERT_FALSE(exported.empty()) << name << ": libhwloc does not load it";
    expect_same_answers(*graph, exported, name + " by libhwloc");
    ++written;
  }
  EXPECT_GT(written, 80);
}

}  // namespace
}  // namespace tutti::topology::test
