// `tutti topo`: its page, its JSON and its picture, for small topologies of our own and for every machine of the
// corpus.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <pugixml.hpp>
#include <sstream>

#include "tests/tools/launched.h"
#include "tools/text_block.h"
#include "tools/topo.h"
#include "tools/topo_layout.h"
#include "tools/topo_matrix.h"
#include "tools/topo_svg.h"
#include "tools/topo_text.h"
#include "topology/read.h"

namespace tutti::tools {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;
using topology::Graph;
using topology::VertexKind;
namespace fs = std::filesystem;

const fs::path kData = fs::path(TUTTI_SOURCE_DIR) / "tests/topology/data";

std::string contents(const fs::path& file) {
  std::ifstream stream(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), {}};
}

Graph own(const std::string& name) {
  Result<Graph> graph = read_topology((kData / name).string());
  EXPECT_TRUE(graph.ok()) << graph.status().to_string();
  graph->source = name;
  return *graph;
}

fs::path corpus() {
  const char* named = std::getenv("TUTTI_TOPOLOGY_CORPUS");
  const fs::path folder = named ? fs::path(named) : fs::path(TUTTI_SOURCE_DIR) / "../shared/topology";
  return fs::is_directory(folder) ? folder : fs::path();
}

std::vector<fs::path> machines() {
  std::vector<fs::path> files;
  const auto take = [&files](const fs::path& folder) {
    if (!fs::is_directory(folder)) return;
    for (const auto& entry : fs::directory_iterator(folder)) {
      const std::string name = entry.path().filename().string();
      if (entry.is_regular_file() && name.find("INDEX") != 0 && name.find(".json") == std::string::npos)
        files.push_back(entry.path());
    }
  };
  take(kData);
  if (!corpus().empty())
    for (const char* folder : {"hwloc", "hwloc-fsroot", "nccl", "matrix"}) take(corpus() / folder);
  std::sort(files.begin(), files.end());
  return files;
}

// The page of a topology of ours is the file of that name; a change of it is looked at and then kept by hand.
class Golden : public testing::TestWithParam<const char*> {};
TEST_P(Golden, Page) {
  const std::string page = topo_text(own(GetParam()));
  EXPECT_EQ(page,
            contents(fs::path(TUTTI_SOURCE_DIR) / "tests/golden/topology" / (std::string(GetParam()) + ".page.txt")));
}
INSTANTIATE_TEST_SUITE_P(Topo, Golden,
                         testing::Values("dual-epyc-8gpu.nccl.xml", "hwloc-links-and-tiles.xml", "cube-mesh-soc.txt"));

TEST(Topo, TellsTheMachine) {
  const std::string page = topo_text(own("dual-epyc-8gpu.nccl.xml"));
  EXPECT_THAT(page, AllOf(HasSubstr("2 packages, 2 NUMA nodes, 8 GPUs, 1 NIC"), HasSubstr("{0 1 2 3} {4 5 6 7}"),
                          HasSubstr("chosen       0 1 2 3 4 5 6 7: 2 hops between packages"),
                          HasSubstr("read: NCCL XML link_speed 16.0 GT/s x16"), HasSubstr("GPU 0 1 2 3: mlx5_0 (PHB)"),
                          HasSubstr("GPU 4 5 6 7: none near")));
}

TEST(Topo, TellsWhatTheIndexOrderWouldCost) {
  const std::string page = topo_text(own("interleaved.nccl.xml"));
  const auto figures = [&page](const std::string& name) {
    const std::size_t at = page.find("  " + name);
    return page.substr(page.find(": ", at) + 2, page.find(" between packages", at) - page.find(": ", at) - 2);
  };
  EXPECT_EQ(figures("chosen"), "2 hops");
  EXPECT_NE(figures("index order"), "2 hops");
}

TEST(Topo, SaysWhatWasDistrusted) {
  const std::string page = topo_text(own("vm-doubts.nccl.xml"));
  ASSERT_NE(page.find("\ndistrusted\n"), std::string::npos);
  EXPECT_THAT(page.substr(page.find("\ndistrusted\n")),
              AllOf(HasSubstr("no GPU has that few"), HasSubstr("numaid -1")));
}

TEST(Matrix, LabelsAreThoseOfNvidiaSmi) {
  const Graph tiles = own("hwloc-links-and-tiles.xml");  // GPUs on one host bridge; two NVLinks between 0 and 1
  const MatrixLabels of_tiles(tiles);
  const std::vector<int> gpus = tiles.all(VertexKind::gpu);
  EXPECT_EQ(of_tiles.between(gpus[0], gpus[0]), "X");
  EXPECT_EQ(of_tiles.between(gpus[0], gpus[1]), "NV2");
  EXPECT_EQ(of_tiles.between(gpus[0], gpus[2]), "PHB");
  const Graph epyc = own("hwloc-dual-epyc.xml");
  const MatrixLabels of_epyc(epyc);
  const std::vector<int> eight = epyc.all(VertexKind::gpu);
  ASSERT_EQ(eight.size(), 8u);
  EXPECT_EQ(of_epyc.between(eight[0], eight[4]), "SYS");
  EXPECT_THAT(of_epyc.between(eight[0], eight[1]), testing::AnyOf("PHB", "NODE"));
}

// A switch as hwloc sees it: an upstream port with a port for each device.
Graph two_switches() {
  Graph graph;
  const auto add = [&graph](VertexKind kind, int parent, int index = -1) {
    topology::Vertex v;
    v.kind = kind;
    v.parent = parent;
    v.index = v.os_index = index;
    graph.vertices.push_back(v);
    return int(graph.vertices.size()) - 1;
  };
  graph.format = "hwloc-xml";
  const int numa = add(VertexKind::numa, add(VertexKind::package, add(VertexKind::machine, -1, 0), 0), 0);
  int index = 0;
  for (int bridge = 0; bridge < 2; ++bridge) {
    const int root = add(VertexKind::pci_bridge, add(VertexKind::host_bridge, numa));
    for (int twice = 0; twice < 2; ++twice) {
      const int upstream = add(VertexKind::pci_bridge, add(VertexKind::pci_bridge, root));
      for (int port = 0; port < 2; ++port) add(VertexKind::gpu, add(VertexKind::pci_bridge, upstream), index++);
    }
  }
  return graph;
}

TEST(Matrix, TellsOneSwitchFromSeveral) {
  const Graph graph = two_switches();
  const MatrixLabels labels(graph);
  const std::vector<int> gpus = graph.all(VertexKind::gpu);
  EXPECT_EQ(labels.between(gpus[0], gpus[1]), "PIX");
  EXPECT_EQ(labels.between(gpus[0], gpus[2]), "PXB");
  EXPECT_EQ(labels.between(gpus[0], gpus[4]), "NODE");
}

TEST(Matrix, OfAMachineWithoutGpusIsOfItsNumaNodes) {
  const Result<Graph> graph = read_topology("package:2 numa:2 pu:2");
  ASSERT_TRUE(graph.ok());
  EXPECT_THAT(matrix_text(*graph),
              AllOf(HasSubstr("NUMA0  X      PKG    SYS    SYS\n"), HasSubstr("NUMA3  SYS    SYS    PKG    X\n"),
                    HasSubstr("PKG   between NUMA nodes of one package"), HasSubstr("SYS   between NUMA nodes\n")));
}

TEST(Json, HasTheKeysThatItPromises) {
  const nlohmann::json json = nlohmann::json::parse(topo_json(own("dual-epyc-8gpu.nccl.xml")));
  EXPECT_EQ(json["gpus"], 8);
  EXPECT_EQ(json["format"], "nccl-xml");
  EXPECT_EQ(json["source"], "dual-epyc-8gpu.nccl.xml");
  EXPECT_EQ(json["distrusted"], nlohmann::json::array());
  EXPECT_TRUE(json["notes"].is_array());
  EXPECT_EQ(json["min_cross_socket_hops_in_ring"], 2);
}

// Counts elements of a class in an SVG.
std::size_t count_class(const pugi::xml_document& document, const std::string& name) {
  std::size_t count = 0;
  struct Walker : pugi::xml_tree_walker {
    std::string wanted;
    std::size_t* count;
    bool for_each(pugi::xml_node& node) override {
      std::istringstream words(node.attribute("class").value());
      for (std::string word; words >> word;) *count += word == wanted;
      return true;
    }
  } walker;
  walker.wanted = name;
  walker.count = &count;
  document.document_element().traverse(walker);
  return count;
}

// Boxes are within their parents, and neighbours do not overlap.
void expect_tidy(const Box& box) {
  constexpr double kSlack = 1e-6;
  for (std::size_t i = 0; i < box.children.size(); ++i) {
    const Box& a = box.children[i];
    EXPECT_TRUE(a.x >= box.x - kSlack && a.y >= box.y && a.x + a.width <= box.x + box.width + kSlack &&
                a.y + a.height <= box.y + box.height + kSlack)
        << a.told;
    for (std::size_t j = 0; j < i; ++j) {
      const Box& b = box.children[j];
      EXPECT_TRUE(a.x >= b.x + b.width || b.x >= a.x + a.width || a.y >= b.y + b.height || b.y >= a.y + a.height)
          << a.told << " and " << b.told;
    }
    expect_tidy(a);
  }
}

TEST(Svg, DrawsTheRingThroughEachMemberOnce) {
  const Graph graph = own("dual-epyc-8gpu.nccl.xml");
  pugi::xml_document document;
  ASSERT_TRUE(document.load_string(topo_svg(graph).c_str()));
  EXPECT_EQ(count_class(document, "ring"), 8u);
  EXPECT_EQ(count_class(document, "cross"), 2u);  // of them, between packages
  EXPECT_EQ(count_class(document, "dot"), 8u);
  EXPECT_EQ(count_class(document, "gpu"), 8u);
  EXPECT_EQ(count_class(document, "nic"), 1u);
  EXPECT_EQ(count_class(document, "g0") - count_class(document, "group") / 2, 4u);
}

// Two levels: all pairs inside the two groups of four, and each with its opposite.
TEST(Svg, DrawsTheTreesOfSmallMessages) {
  const Graph graph = own("dual-epyc-8gpu.nccl.xml");
  pugi::xml_document document;
  ASSERT_TRUE(document.load_string(topo_svg(graph).c_str()));
  EXPECT_EQ(count_class(document, "tree"), 6u + 6 + 4);
  EXPECT_EQ(count_class(document, "tree-cross"), 4u);
  EXPECT_EQ(count_class(document, "tree-tip"), 2 * 16u);
  EXPECT_THAT(topo_text(graph), HasSubstr("hierarchical for 64K: 2 between packages"));
}

TEST(Svg, LeavesOutWhatNobodyCouldSee) {
  const Result<Graph> graph = read_topology("package:50 numa:2 pu:2");
  ASSERT_TRUE(graph.ok());
  pugi::xml_document document;
  const std::string svg = topo_svg(*graph);
  ASSERT_TRUE(document.load_string(svg.c_str()));
  EXPECT_EQ(count_class(document, "dot"), 2 * kMostPlaces);
  EXPECT_EQ(count_class(document, "ring"), 2 * kMostPlaces);
  EXPECT_THAT(svg, HasSubstr("drawn: 64 of 100 members"));
}

TEST(Svg, OfNamesThatAreNoXml) {
  Graph graph = own("dual-epyc-8gpu.nccl.xml");
  graph.source = "a<b>&\"c\x01\xff\xc3";
  for (topology::Vertex& v : graph.vertices) v.name += "<script>\x1b[2J\xf8";
  pugi::xml_document document;
  const std::string svg = topo_svg(graph);
  ASSERT_TRUE(document.load_string(svg.c_str()));
  EXPECT_THAT(svg, AllOf(Not(HasSubstr("<script>")), Not(HasSubstr("\x1b"))));
  EXPECT_THAT(topo_text(graph), Not(HasSubstr("\x1b")));
  EXPECT_TRUE(nlohmann::json::accept(topo_json(graph)));
}

// Every machine through every output: in no case a crash; what cannot be read is refused by name.
TEST(Corpus, GoesThroughEveryOutput) {
  if (corpus().empty())
    GTEST_LOG_(INFO) << "no corpus beside the sources (TUTTI_TOPOLOGY_CORPUS): only our own topologies";
  for (const fs::path& file : machines()) {
    SCOPED_TRACE(file.filename().string());
    const Result<Graph> graph = read_topology(file.string());
    if (!graph) {
      EXPECT_EQ(graph.status().code(), Code::unsupported) << graph.status().to_string();
      EXPECT_THAT(graph.status().text(), AllOf(HasSubstr(file.filename().string()), HasSubstr("version")));
      continue;
    }
    std::istringstream page(topo_text(*graph));
    for (std::string line; std::getline(page, line);) EXPECT_LE(columns(line), kTextColumns) << line;
    const nlohmann::json json = nlohmann::json::parse(topo_json(*graph));
    for (const char* key : {"source", "format", "distrusted", "notes", "gpus", "nics"})
      EXPECT_TRUE(json.contains(key)) << key;
    const RingChoice ring = choose_ring(*graph);
    pugi::xml_document document;
    ASSERT_TRUE(document.load_string(topo_svg(*graph).c_str()));
    EXPECT_EQ(count_class(document, "ring"), ring.members.size() > 1 ? ring.members.size() : 0);
    EXPECT_EQ(count_class(document, "gpu"), graph->all(VertexKind::gpu).size());
    expect_tidy(layout(*graph, outline(*graph), ring));
    for (const Result<std::string>& written : {topology::write_hwloc_xml(*graph), topology::write_nccl_xml(*graph)})
      EXPECT_TRUE(written.ok() || written.status().code() == Code::unsupported) << written.status().to_string();
  }
}

TEST(Texts, WrapAndCut) {
  EXPECT_EQ(wrapped("aa bb cc", "- ", "  ", 7), "- aa bb\n  cc\n");
  EXPECT_EQ(wrapped("abcdefghijkl", "> ", "  ", 12), "> abcdefghij\n  kl\n");
  EXPECT_EQ(wrapped("a b" + std::string(kNoBreak) + "c", "", "", 4), "a\nb c\n");
  EXPECT_EQ(wrapped("", "x ", ""), "x\n");
  EXPECT_EQ(columns("├─ é"), 4u);
  EXPECT_EQ(shortened("├─ éa", 4), "├─ …");
  EXPECT_EQ(printable("a\n\x1b\x7f\xc3\xa9\xc3(\xed\xa0\x80"), "a???é?(???");
}

// The whole command.
TEST(TopoCommand, ReadsStandardInput) {
  Launched job({"topo", "--file", "-", "--json"}, {.input = contents(kData / "hwloc-dual-epyc.xml")});
  EXPECT_EQ(job.exit_status(), 0) << job.err();
  const nlohmann::json json = nlohmann::json::parse(job.out());
  EXPECT_EQ(json["source"], "standard input");
  EXPECT_EQ(json["gpus"], 8);
}

TEST(TopoCommand, RefusesWhatItCannotRead) {
  Launched missing({"topo", "--file", "no/such/file"});
  EXPECT_EQ(missing.exit_status(), 2);
  EXPECT_THAT(missing.err(), AllOf(StartsWith("tutti topo: "), HasSubstr("no/such/file: no such file")));
  Launched cut({"topo", "--file", "-"}, {.input = "<topology version=\"2.0\"><object"});
  EXPECT_EQ(cut.exit_status(), 2);
  EXPECT_THAT(cut.err(), StartsWith("tutti topo: standard input:1: "));
  EXPECT_EQ(cut.out(), "");
}

TEST(TopoCommand, TakesItsInputFromTheEnvironment) {
  Launched job({"topo"}, {.environment = {{"TUTTI_TOPOLOGY_FILE", (kData / "interleaved.nccl.xml").string()}}});
  EXPECT_EQ(job.exit_status(), 0) << job.err();
  EXPECT_THAT(job.out(), HasSubstr("interleaved.nccl.xml"));
  Launched flag({"topo", "--file", "numa:2 pu:2"}, {.environment = {{"TUTTI_TOPOLOGY_FILE", "no/such/file"}}});
  EXPECT_EQ(flag.exit_status(), 0) << flag.err();
}

TEST(TopoCommand, WritesFiles) {
  const fs::path folder = fs::path(testing::TempDir()) / ("topo-" + std::to_string(getpid()));
  fs::create_directories(folder);
  const auto in = [&folder](const char* name) { return (folder / name).string(); };
  Launched job({"topo", "--file", (kData / "dual-epyc-8gpu.nccl.xml").string(), "--svg", in("a.svg"), "--write-hwloc",
                in("a.xml"), "--write-nccl", in("b.xml")},
               {.environment = {{"TUTTI_TOPOLOGY_DUMP", in("c.nccl.xml")}}});
  EXPECT_EQ(job.exit_status(), 0) << job.err();
  EXPECT_EQ(job.out(), "");
  EXPECT_THAT(contents(folder / "a.svg"), StartsWith("<svg "));
  EXPECT_THAT(contents(folder / "a.xml"), HasSubstr("<topology"));
  EXPECT_THAT(contents(folder / "b.xml"), HasSubstr("<system"));
  EXPECT_EQ(contents(folder / "b.xml"), contents(folder / "c.nccl.xml"));
  EXPECT_EQ(nlohmann::json::parse(topo_json(*read_topology(in("a.xml"))))["gpus"], 8);
  Launched dump({"topo", "--file", "numa:2 pu:2"}, {.environment = {{"TUTTI_TOPOLOGY_DUMP", in("d.xml")}}});
  EXPECT_EQ(dump.exit_status(), 0);
  EXPECT_THAT(dump.out(), HasSubstr("2 NUMA nodes"));
  EXPECT_THAT(contents(folder / "d.xml"), HasSubstr("<topology"));
  Launched refused({"topo", "--file", (kData / "cube-mesh-soc.txt").string(), "--write-nccl", in("e.xml")});
  EXPECT_EQ(refused.exit_status(), 2);
  EXPECT_FALSE(fs::exists(folder / "e.xml"));
  Launched nowhere({"topo", "--file", "numa:2 pu:2", "--svg", in("no/a.svg")});
  EXPECT_EQ(nowhere.exit_status(), 2);
  EXPECT_THAT(nowhere.err(), HasSubstr("cannot be written"));
  fs::remove_all(folder);
}

}  // namespace
}  // namespace tutti::tools
