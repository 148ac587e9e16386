// NCCL and RCCL XML: one small file a peculiarity, expected values read off by hand, and what is refused.
#include <gtest/gtest.h>

#include "tests/topology/expectations.h"
#include "topology/answers.h"
#include "topology/describe.h"
#include "topology/package_guess.h"
#include "topology/pci_speed.h"
#include "topology/read.h"

namespace tutti::topology::test {
namespace {

using nlohmann::json;

Graph graph_of(const std::string& file) {
  const Result<Graph> graph =
      read_nccl_xml(read_text(std::filesystem::path(TUTTI_SOURCE_DIR) / "tests/topology/data" / file), file);
  EXPECT_TRUE(graph.ok()) << graph.status().to_string();
  return graph.ok() ? *graph : Graph();
}

std::string refusal_of(const std::string& text) {
  const Result<Graph> graph = read_nccl_xml(text, "f.xml");
  EXPECT_EQ(graph.status().code(), Code::invalid_argument);
  return graph.status().text();
}

bool distrusts(const Graph& graph, const std::string& text) {
  for (const std::string& line : graph.distrusted)
    if (line.find(text) != std::string::npos) return true;
  return false;
}

const Link* link_of(const Graph& graph, int vertex, LinkKind kind) {
  for (const Link& link : graph.links)
    if (link.a == vertex && link.kind == kind) return &link;
  return nullptr;
}

// The case of issue: two packages of four GPUs on PCIe. The ring crosses the socket link twice, groups are the NUMA
// nodes.
TEST(NcclXml, DualEpycHasTwoGroupsOfFourAndARingOfTwoCrossings) {
  const Graph graph = graph_of("dual-epyc-8gpu.nccl.xml");
  EXPECT_EQ(nearest_groups(graph), (Groups{{0, 1, 2, 3}, {4, 5, 6, 7}}));
  EXPECT_EQ(groups_within(graph, VertexKind::package), (Groups{{0, 1, 2, 3}, {4, 5, 6, 7}}));
  const Ring ring = best_ring(graph);
  EXPECT_EQ(ring.cross_package, 2);
  EXPECT_EQ(ring.cross_numa, 2);
  EXPECT_EQ(level_between(graph, graph.all(VertexKind::gpu)[0], graph.all(VertexKind::gpu)[1]), Level::numa);
  EXPECT_EQ(level_between(graph, graph.all(VertexKind::gpu)[3], graph.all(VertexKind::gpu)[4]), Level::machine);
  const Link* link = link_of(graph, graph.all(VertexKind::gpu)[5], LinkKind::pci);
  ASSERT_NE(link, nullptr);
  EXPECT_NEAR(link->bandwidth.value, 31.5e9, 0.1e9);  // PCIe 4.0 x16: 16 lanes of 16 Gbit/s, 128/130
  EXPECT_EQ(link->bandwidth.origin, Origin::read);
  EXPECT_EQ(graph.vertices[std::size_t(graph.all(VertexKind::numa)[1])].cpus.to_string(), "64-127,192-255");
  EXPECT_EQ(describe(graph).at("no_local_nic"), json({4, 5, 6, 7}));
  EXPECT_TRUE(graph.distrusted.empty());
}

TEST(NcclXml, StandInSwitchesGroupAndDisplayChipsAreNoGpus) {
  const Graph graph = graph_of("fake-switch.nccl.xml");
  json d = describe(graph);
  EXPECT_EQ(d["gpus"], 4);
  EXPECT_EQ(d["nics"], 1);
  EXPECT_EQ(d["groups"], json({{0, 1}, {2, 3}}));
  EXPECT_EQ(d["nearest_gpu_level"]["0"], "SWITCH");
  EXPECT_EQ(d["nearest_nic"], json({{"0", {"0000:10:1b.0"}}, {"1", {"0000:10:1b.0"}}}));
  EXPECT_EQ(d["not_gpus_display_only"], json({"0000:00:02.0 1a03:2000"}));
  EXPECT_TRUE(distrusts(graph, "bridge ffff:ff:01.0 is a stand-in"));
}

TEST(NcclXml, WhatAVirtualMachineMakesUpIsNotBelieved) {
  const Graph graph = graph_of("vm-doubts.nccl.xml");
  EXPECT_TRUE(distrusts(graph, "numaid -1"));
  EXPECT_TRUE(distrusts(graph, "GPU 0: 12 links to itself"));
  EXPECT_TRUE(distrusts(graph, "GPU 1: 9000 links"));
  EXPECT_TRUE(distrusts(graph, "2.5 GT/s PCIe x1"));
  EXPECT_TRUE(distrusts(graph, "Unknown x255"));
  EXPECT_TRUE(distrusts(graph, "speed -1"));
  EXPECT_TRUE(distrusts(graph, "NUMA node 1: affinity 0000ffff overlaps"));
  EXPECT_TRUE(distrusts(graph, "without any CPU"));
  EXPECT_TRUE(graph.links.empty());
  json d = describe(graph);
  EXPECT_EQ(d["gpu_numa"], json({0, 1, nullptr, nullptr}));
  EXPECT_EQ(d["nearest_gpu"],
            json({{"0", json::array()}, {"1", json::array()}, {"2", json::array()}, {"3", json::array()}}));
  EXPECT_EQ(d["nics"], 0);
  EXPECT_EQ(d["virtual_nets_without_pci"], json({"eth0"}));
  EXPECT_FALSE(d.contains("nearest_nic"));
}

TEST(NcclXml, BothPortsOfACardAndLinksToSwitches) {
  const Graph graph = graph_of("dual-port-and-switch.nccl.xml");
  json d = describe(graph);
  EXPECT_EQ(d["nics"], 2);
  EXPECT_EQ(d["nic_pci_functions"], 1);
  EXPECT_EQ(d["nearest_nic"], json({{"0", {"mlx5_10", "mlx5_9"}}, {"1", {"mlx5_10", "mlx5_9"}}}));
  EXPECT_EQ(d["nearest_nic_level"], json({{"0", "NUMA"}, {"1", "SWITCH"}}));
  EXPECT_EQ(d["gpu_busid"], json({"0000:18:00.0", "0000:0a:00.0"}));  // by rank, not by bus
  EXPECT_EQ(d["links_to_switch_or_unlisted"], json({{"0", 2}, {"1", 18}}));
  EXPECT_FALSE(d.contains("direct_links"));
  EXPECT_EQ(graph.all(VertexKind::gpu_switch).size(), 2u);
  const Link* net = link_of(graph, graph.all(VertexKind::nic)[0], LinkKind::network);
  ASSERT_NE(net, nullptr);
  EXPECT_DOUBLE_EQ(net->bandwidth.value, 25e9);
  const Link* nvlink = link_of(graph, graph.all(VertexKind::gpu)[1], LinkKind::nvlink);
  ASSERT_NE(nvlink, nullptr);
  EXPECT_EQ(nvlink->bandwidth.origin, Origin::assumed);
}

TEST(NcclXml, InterleavedNumbersAreGatheredByTheRing) {
  const Graph graph = graph_of("interleaved.nccl.xml");
  json d = describe(graph);
  EXPECT_EQ(d["numa_ids_in_file"], json({1, 0, 3, 2}));
  EXPECT_EQ(d["gpu_numa"], json({1, 3, 0, 2, 2, 1, 3, 0}));
  EXPECT_EQ(d["gpu_socket"], json({0, 1, 0, 1, 1, 0, 1, 0}));  // 4 x 32 cores: two Rome
  EXPECT_EQ(d["groups"], json({{0, 5}, {1, 6}, {2, 7}, {3, 4}}));
  EXPECT_EQ(d["min_cross_socket_hops_in_ring"], 2);
  EXPECT_EQ(d["min_cross_numa_hops_in_ring"], 4);
  EXPECT_EQ(d["cross_socket_hops_of_index_order"], 6);  // 0 1 0 1 1 0 1 0
  EXPECT_EQ(d["cross_numa_hops_of_index_order"], 7);    // all but 3 to 4
  EXPECT_EQ(d["nearest_nic"], json({{"1", {"mlx5_0"}}, {"6", {"mlx5_0"}}}));
  EXPECT_EQ(d["nearest_nic_same_socket"], json({{"3", {"mlx5_0"}}, {"4", {"mlx5_0"}}}));
}

TEST(NcclXml, UnevenTreesHaveNearestButNoGroups) {
  const Graph graph = graph_of("uneven-tree.nccl.xml");
  json d = describe(graph);
  EXPECT_EQ(d["nearest_gpu"], json({{"0", {1}}, {"1", {0}}, {"2", {0, 1}}}));
  EXPECT_FALSE(d.contains("groups"));
  EXPECT_EQ(d["groups_by_level"]["SWITCH"], json({{0, 1, 2}}));
  EXPECT_EQ(d["logical_gpus"], 4);
  EXPECT_EQ(d["direct_links"], json({{0, 2, 1}}));  // the lower of the two counts
  EXPECT_TRUE(distrusts(graph, "the lower number is taken"));
  EXPECT_TRUE(distrusts(graph, "0000:32:00.0 is the address of two devices"));
  EXPECT_EQ(d["nics"], 1);
}

TEST(NcclXml, LeavesWithoutAClassStayUnknown) {
  json d = describe(graph_of("no-class.nccl.xml"));
  EXPECT_EQ(d["gpus"], 0);
  EXPECT_EQ(d["numa_nodes"], 2);
  EXPECT_EQ(d["leaves_by_numa_and_switch"],
            json({{{"numa", 0}, {"switch", "root"}, {"leaves", {"0000:00:16.0"}}},
                  {{"numa", 0}, {"switch", "0000:00:01.0"}, {"leaves", {"0000:01:00.0"}}},
                  {{"numa", 1}, {"switch", "root"}, {"leaves", {"0000:00:1a.0"}}}}));
}

TEST(NcclXml, SeveralHostsAreRefusedByName) {
  const Result<Graph> graph =
      read_nccl_xml("<system><cpu host_hash=\"1\" numaid=\"0\"/><cpu host_hash=\"2\" numaid=\"0\"/></system>", "f.xml");
  EXPECT_EQ(graph.status().code(), Code::unsupported);
  EXPECT_NE(graph.status().text().find("2 hosts"), std::string::npos);
}

TEST(NcclXml, RefusalsNameTheLineAndWhatWasExpected) {
  EXPECT_EQ(refusal_of("<system>\n<cpu numaid=\"0\">\n<pci busid=\"0000:01:00.0\">").rfind("f.xml:3: not XML", 0), 0u);
  EXPECT_EQ(refusal_of("").rfind("f.xml:1: not XML", 0), 0u);
  EXPECT_EQ(refusal_of("\n<topology version=\"2.0\"/>"), "f.xml:2: expected <system>, found <topology>");
  EXPECT_EQ(refusal_of("<system>\n</system>"),
            "f.xml:1: expected a <cpu> or <pci> element inside of <system>, found none");
  EXPECT_EQ(refusal_of("<system>\n<cpu/>\n</system>"), "f.xml:2: numaid=\"\"; expected a whole number");
  EXPECT_EQ(refusal_of("<system>\n<cpu numaid=\"0\" affinity=\"xyz\"/>\n</system>"),
            "f.xml:2: affinity=\"xyz\"; expected 32-bit hexadecimal words with commas");
  EXPECT_EQ(refusal_of("<system><cpu numaid=\"0\">\n\n<pci busid=\"17\"/></cpu></system>"),
            "f.xml:3: busid=\"17\"; expected domain:bus:device.function");
  EXPECT_EQ(refusal_of("<system><cpu numaid=\"0\">\n<gpu dev=\"0\"/></cpu></system>"),
            "f.xml:2: <gpu> inside of <cpu>; expected it inside of <pci>");
  EXPECT_EQ(refusal_of("<system><cpu numaid=\"0\"><pci busid=\"0:1:0.0\"><pci busid=\"0:2:0.0\">\n<pci "
                       "busid=\"0:1:0.0\"/></pci></pci></cpu></system>"),
            "f.xml:2: 0:1:0.0 lies inside of itself; expected a tree");
  std::string deep = "<system><cpu numaid=\"0\">\n";
  for (int i = 0; i < 100; ++i)
    deep += "<pci busid=\"0:" + std::string(1, "0123456789abcdef"[i / 16]) +
            std::string(1, "0123456789abcdef"[i % 16]) + ":0.0\">";
  for (int i = 0; i < 100; ++i) deep += "</pci>";
  EXPECT_EQ(refusal_of(deep + "</cpu></system>"), "f.xml:2: elements nested more than 64 deep; expected a PCI tree");
}

TEST(NcclXml, EntitiesAreNotExpanded) {
  const Result<Graph> graph = read_nccl_xml(
      "<!DOCTYPE system [<!ENTITY a \"aaaaaaaaaa\"><!ENTITY b \"&a;&a;&a;&a;\">]>\n<system version=\"&b;\"><cpu "
      "numaid=\"0\"/></system>",
      "f.xml");
  ASSERT_TRUE(graph.ok());
  EXPECT_EQ(graph->version, "&b;");
}

TEST(NcclXml, WritingReadsBackToTheSameAnswers) {
  for (const char* file : {"dual-epyc-8gpu", "fake-switch", "vm-doubts", "dual-port-and-switch", "interleaved",
                           "uneven-tree", "no-class"}) {
    const Graph first = graph_of(std::string(file) + ".nccl.xml");
    const Result<std::string> text = write_nccl_xml(first);
    ASSERT_TRUE(text.ok()) << text.status().to_string();
    const Result<Graph> second = read_nccl_xml(*text, "written");
    ASSERT_TRUE(second.ok()) << second.status().to_string();
    json a = describe(first), b = describe(*second);
    for (const char* remark : {"notes", "distrusted"}) {
      a.erase(remark);
      b.erase(remark);
    }
    EXPECT_EQ(a, b) << file << *text;
  }
}

// Each of these once read back as something else: a NIC that only its <net> shows; a bridge of a GPU's class that its
// only device leaves empty; a display chip of no NUMA node; a package without nodes; packages stated of no node; an old
// display chip.
TEST(NcclXml, WhatIsOddReadsBackToo) {
  const std::string gpu = R"(<pci busid="0:9:0.0" class="0x030200" vendor="0x10de"><gpu dev="0" rank="0"/></pci>)";
  const std::string node = R"(<cpu numaid="0">)" + gpu, none = R"(</cpu><cpu numaid="-1")";
  const std::vector<std::string> systems = {
      node + R"(<pci busid="0:1:0.0"><nic><net/></nic></pci></cpu>)",
      node + R"(<pci busid="0:1:0.0" class="0x030200"><pci busid="0:9:0.0"><gpu/></pci></pci></cpu>)",
      node + none + R"(><pci busid="0:1:0.0" class="0x030000" vendor="0x1a03"/></cpu>)",
      R"(<cpu numaid="7">)" + gpu + "</cpu>",
      node + none + R"( tutti_socket_index="2"/>)",
      R"(<cpu numaid="0"><pci busid="0:9:0.0" class="0x030000" vendor="0x1002" device="0x515e"/></cpu>)",
  };
  for (const std::string& inside : systems) {
    const Result<Graph> first = read_nccl_xml("<system version=\"1\">" + inside + "</system>", "f.xml");
    ASSERT_TRUE(first.ok()) << first.status().to_string();
    const Result<std::string> text = write_nccl_xml(*first);
    ASSERT_TRUE(text.ok()) << text.status().to_string();
    const Result<Graph> second = read_nccl_xml(*text, "written");
    ASSERT_TRUE(second.ok()) << second.status().to_string();
    json a = describe(*first), b = describe(*second);
    for (const char* remark : {"notes", "distrusted"}) {
      a.erase(remark);
      b.erase(remark);
    }
    EXPECT_EQ(a, b) << inside << *text;
  }
}

TEST(NcclXml, AMatrixCannotBeWritten) {
  const Result<Graph> matrix = read_matrix("\tGPU0\tGPU1\nGPU0\t X \tSYS\nGPU1\tSYS\t X \n", "m");
  ASSERT_TRUE(matrix.ok());
  EXPECT_EQ(write_nccl_xml(*matrix).status().code(), Code::unsupported);
}

TEST(PackageGuess, NumberingAndCoresDecideAndElseNothing) {
  const auto nodes = [](std::vector<int> ids, int cores, bool amd, int family, int model) {
    std::vector<NumaFacts> out;
    for (const int id : ids) {
      NumaFacts f{id, {}, family, model, amd};
      if (cores > 0) f.cpus.insert(id * cores, id * cores + cores - 1);
      out.push_back(f);
    }
    return out;
  };
  EXPECT_EQ(guess_packages(nodes({0, 1}, 0, false, -1, -1)).package, (std::vector<int>{0, 1}));
  EXPECT_EQ(guess_packages(nodes({0}, 8, false, -1, -1)).count, 1);
  EXPECT_EQ(guess_packages(nodes({1}, 8, false, -1, -1)).count, 0);  // node 0 may be of the same package
  EXPECT_EQ(guess_packages(nodes({3, 1, 7, 5}, 16, true, 25, 1)).package, (std::vector<int>{0, 0, 1, 1}));
  EXPECT_EQ(guess_packages(nodes({0, 8}, 64, false, -1, -1)).package, (std::vector<int>{0, 1}));
  EXPECT_EQ(guess_packages(nodes({0, 1, 2, 3}, 16, true, 25, 48)).count, 1);  // Trento
  EXPECT_EQ(guess_packages(nodes({0, 1, 2, 3}, 24, true, 25, 17)).count, 0);  // 96 cores fit one Genoa, or two halves
  EXPECT_EQ(guess_packages(nodes({0, 1, 2, 3}, 48, true, 25, 17)).package, (std::vector<int>{0, 0, 1, 1}));
  EXPECT_EQ(guess_packages(nodes({0, 1, 2, 3}, 0, true, 23, 49)).count, 0);
  EXPECT_EQ(guess_packages(nodes({0, 1, 2, 11}, 8, true, 23, 49)).count, 0);
  EXPECT_EQ(guess_packages({}).count, 0);
  EXPECT_EQ(cpuid_family(143, true), 23);
  EXPECT_EQ(cpuid_family(175, true), 25);
  EXPECT_EQ(cpuid_family(6, false), 6);
}

TEST(PciSpeed, CarriesWhatTheStandardSays) {
  EXPECT_EQ(parse_pci_speed("16.0 GT/s PCIe", "16"), (PciSpeed{16, 16}));
  EXPECT_EQ(parse_pci_speed("8 GT/s", "4"), (PciSpeed{8, 4}));
  for (const auto& [speed, width] :
       {std::pair("", "16"), std::pair("Unknown speed", "16"), std::pair("16.0 GT/s", "0"),
        std::pair("16.0 GT/s", "255"), std::pair("17 GT/s", "16"), std::pair("8 GT/s", "x16")})
    EXPECT_EQ(parse_pci_speed(speed, width), std::nullopt) << speed << " " << width;
  EXPECT_DOUBLE_EQ(bytes_per_second({5, 8}), 4e9);
  EXPECT_NEAR(bytes_per_second({8, 16}), 15.754e9, 1e6);
  EXPECT_EQ(nearest_pci_speed(bytes_per_second({2.5, 1})), (PciSpeed{2.5, 1}));
}

}  // namespace
}  // namespace tutti::topology::test
