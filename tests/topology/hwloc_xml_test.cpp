// hwloc XML by hand, one peculiarity each: what is made of it, what is not believed, what is refused and with which
// words.
#include <gtest/gtest.h>

#include <fmt/format.h>

#include "tests/topology/expectations.h"
#include "tests/topology/said.h"
#include "topology/answers.h"
#include "topology/describe.h"
#include "topology/read.h"

namespace tutti::topology::test {
namespace {

using nlohmann::json;

Graph read_data(const std::string& name) {
  const Result<Graph> graph = read_file(std::string(TUTTI_SOURCE_DIR) + "/tests/topology/data/" + name);
  EXPECT_TRUE(graph.ok()) << graph.status().to_string();
  return graph.ok() ? *graph : Graph{};
}

std::string about(const std::vector<std::string>& lines, const std::string& word) {
  for (const std::string& line : lines)
    if (line.find(word) != std::string::npos) return line;
  return "nothing about " + word;
}

std::string refusal(const std::string& text) {
  const Result<Graph> graph = read_hwloc_xml(text, "x.xml");
  EXPECT_FALSE(graph.ok()) << text;
  return graph.ok() ? "" : said(graph.status());
}

std::string machine(const std::string& inside, const std::string& version = " version=\"2.0\"") {
  return "<topology" + version + ">\n<object type=\"Machine\" cpuset=\"0x3\" nodeset=\"0x1\">\n" + inside +
         "\n<object type=\"PU\" os_index=\"0\" cpuset=\"0x1\"/><object type=\"PU\" os_index=\"1\" "
         "cpuset=\"0x2\"/></object>\n</topology>\n";
}

TEST(HwlocXml, DualEpycWithFourGpusANode) {
  const json is = describe(read_data("hwloc-dual-epyc.xml"));
  EXPECT_EQ(is["gpus"], 8);
  EXPECT_EQ(is["sockets"], 2);
  EXPECT_EQ(is["gpu_numa"], json::parse("[0,0,0,0,1,1,1,1]"));
  EXPECT_EQ(is["groups_by_level"]["NUMA"], json::parse("[[0,1,2,3],[4,5,6,7]]"));
  EXPECT_EQ(is["groups"], json::parse("[[0,1],[2,3],[4,5],[6,7]]"));
  EXPECT_EQ(is["min_cross_socket_hops_in_ring"], 2);
  EXPECT_EQ(is["nearest_nic"]["0"], json::parse(R"(["mlx5_0"])"));
  EXPECT_EQ(is["nearest_nic"]["5"], json::parse(R"(["mlx5_1"])"));
}

TEST(HwlocXml, FiguresCarryTheirOrigin) {
  const Graph graph = read_data("hwloc-dual-epyc.xml");
  int pci = 0, socket = 0;
  for (const Link& link : graph.links) {
    EXPECT_FALSE(link.bandwidth.source.empty());
    if (link.kind == LinkKind::pci && graph.vertices[std::size_t(link.b)].kind == VertexKind::gpu) {
      ++pci;
      EXPECT_EQ(link.bandwidth.origin, Origin::read);
      EXPECT_DOUBLE_EQ(link.bandwidth.value, 31.507692e9);
      EXPECT_EQ(link.a, graph.vertices[std::size_t(link.b)].parent);
    }
    if (link.kind == LinkKind::socket) {
      ++socket;
      EXPECT_EQ(link.bandwidth.origin, Origin::assumed);
    }
  }
  EXPECT_EQ(pci, 8);
  EXPECT_EQ(socket, 1);
}

// One package: hwloc hangs host bridges at the machine, which holds the same CPUs as the package and its node.
TEST(HwlocXml, DevicesAtTheMachineOfOnePackageAreInItsNode) {
  const json is = describe(read_data("hwloc-one-package.xml"));
  EXPECT_EQ(is["gpu_socket"], json::parse("[0,0]"));
  EXPECT_EQ(is["gpu_numa"], json::parse("[0,0]"));
  EXPECT_EQ(is["nearest_gpu_level"]["0"], "NUMA");
  EXPECT_EQ(is["numa_nodes"], 2);  // the second is memory only
}

TEST(HwlocXml, Version1HasNodesInTheTree) {
  const json is = describe(read_data("hwloc-version1.xml"));
  EXPECT_EQ(is["xml_version"], "1");
  EXPECT_EQ(is["numa_nodes"], 3);
  EXPECT_EQ(is["numa_nodes_without_cpu"], 1);
  EXPECT_EQ(is["gpu_numa"], json::parse("[0,8]"));
  EXPECT_EQ(is["gpu_socket"], json::parse("[0,1]"));
  EXPECT_EQ(is["nearest_nic"]["1"], json::parse(R"(["enp1s0"])"));
  EXPECT_EQ(is["nearest_nic_level"]["1"], "NUMA");
}

TEST(HwlocXml, WhatAVirtualMachineMakesUpIsNotBelieved) {
  const Graph graph = read_data("hwloc-virtual-machine.xml");
  const json is = describe(graph);
  EXPECT_EQ(is["gpus"], 2);
  EXPECT_EQ(is["nics"], 1);
  EXPECT_EQ(is["net_osdevs_without_pci"], json::parse(R"(["eth0"])"));
  EXPECT_EQ(is["nearest_nic"]["0"], json::parse(R"(["mlx5_0"])"));
  EXPECT_EQ(about(graph.distrusted, "0000:05:00.0"),
            "0000:05:00.0: PCI link of 0.25 GB/s, as virtual machines report it");
  EXPECT_EQ(about(graph.distrusted, "made up by a hypervisor: what"),
            "bridge 0000:04:00.0 is made up by a hypervisor: what hangs below need not share a switch");
  for (const Link& link : graph.links) EXPECT_NE(link.kind, LinkKind::pci) << link.bandwidth.source;
}

TEST(HwlocXml, EmptySetsForbiddenCpusAndDuplicates) {
  const Graph graph = read_data("hwloc-empty-sets.xml");
  const json is = describe(graph);
  EXPECT_EQ(is["sockets"], 2);
  EXPECT_EQ(is["numa_nodes"], 2);
  EXPECT_EQ(is["gpu_socket"], json::parse("[0,1]"));
  EXPECT_EQ(is["gpu_numa"], json::parse("[0,1]"));
  EXPECT_EQ(is["numa_nodes_without_cpu"], 1);
  ASSERT_EQ(graph.all(VertexKind::pu).size(), 1u);  // PU 1 is not allowed
  EXPECT_EQ(graph.vertices[0].cpus.to_string(), "0");
  EXPECT_EQ(about(graph.distrusted, "empty set"),
            "NUMA node 1: has devices and an empty set of CPUs; the tree tells where they are");
  EXPECT_EQ(about(graph.distrusted, "twice"),
            "line 23: PCI function 0000:81:00.0 is there twice, the second is left out");
}

TEST(HwlocXml, LinksOfGpusTilesAndOtherAccelerators) {
  const Graph graph = read_data("hwloc-links-and-tiles.xml");
  const json is = describe(graph);
  EXPECT_EQ(is["gpus"], 3);
  EXPECT_EQ(is["logical_gpus"], 4);
  EXPECT_EQ(is["direct_links"], json::parse("[[0,1,2]]"));
  EXPECT_EQ(is["links_to_switch_or_unlisted"], json::parse(R"({"0":6})"));  // a NVSwitch
  EXPECT_EQ(is["not_gpus_display_only"], json::parse(R"(["0000:04:00.0 1002:515e"])"));
  EXPECT_EQ(is["other_accelerators"], json::parse(R"(["0000:05:00.0 1200 10ee:5000"])"));
}

TEST(HwlocXml, WithoutNodesThereIsOne) {
  const Result<Graph> graph = read_hwloc_xml(machine(""), "x.xml");
  ASSERT_TRUE(graph.ok());
  EXPECT_EQ(graph->all(VertexKind::numa).size(), 1u);
  EXPECT_EQ(about(graph->notes, "NUMA"), "no NUMA node in the file: the machine is taken as one");
}

TEST(HwlocXml, RefusalsNameTheLineAndWhatWasExpected) {
  EXPECT_EQ(refusal(""),
            "invalid_argument: x.xml:1: expected well-formed XML: No document element found (the file ends too early)");
  const std::string whole = machine("");
  EXPECT_EQ(refusal(whole.substr(0, whole.size() / 2)).rfind("invalid_argument: x.xml:4: expected well-formed XML", 0),
            0u);
  EXPECT_EQ(refusal("<system/>"), "invalid_argument: x.xml:1: expected <topology>, found <system>");
  EXPECT_EQ(refusal("<topology version=\"2.0\"/>"),
            "invalid_argument: x.xml:1: expected <object type=\"Machine\"> in <topology>, found none");
  EXPECT_EQ(refusal(machine("", " version=\"two\"")),
            "invalid_argument: x.xml:1: version=\"two\": expected 1 or 2, such as 2.0");
  EXPECT_EQ(
      refusal(machine("", " version=\"3.0\""))
          .rfind("unsupported: x.xml:1: hwloc XML version 3.0: only versions 1 and 2 can be read; export it again", 0),
      0u);
  EXPECT_EQ(refusal("<topology>\n<object type=\"Machine\"/>\n</topology>"),
            "invalid_argument: x.xml:2: expected at least one object of type PU, found none");
  EXPECT_EQ(refusal("<topology>\n<object type=\"PU\" os_index=\"0\"/></topology>"),
            "invalid_argument: x.xml:2: expected the root to be a Machine, found PU");
  EXPECT_EQ(refusal(machine("<object/>")), "invalid_argument: x.xml:3: <object>: expected an attribute type");
  EXPECT_EQ(refusal(machine("<object type=\"PU\"/>")),
            "invalid_argument: x.xml:3: PU: expected os_index from 0 to 131071, found \"\"");
  EXPECT_EQ(refusal(machine("<object type=\"Core\" cpuset=\"0xg\"/>")),
            "invalid_argument: x.xml:3: cpuset=\"0xg\": expected a set such as 0x0000000f,,0xff000000 of at most "
            "131072 bits");
  EXPECT_EQ(refusal(machine("<object type=\"PCIDev\" pci_busid=\"nowhere\"/>")),
            "invalid_argument: x.xml:3: PCIDev: pci_busid=\"nowhere\": expected an address such as 0000:13:00.0");
  EXPECT_EQ(refusal(machine("<object type=\"PCIDev\" pci_busid=\"0000:01:00.0\" pci_type=\"0302\"/>")),
            "invalid_argument: x.xml:3: PCIDev: pci_type=\"0302\": expected class and ids such as 0302 [10de:1db1]");
  EXPECT_EQ(
      refusal(machine(
          "<object type=\"PCIDev\" pci_busid=\"0000:01:00.0\" pci_type=\"0302 [10de:1db1]\" pci_link_speed=\"nan\"/>")),
      "invalid_argument: x.xml:3: pci_link_speed=\"nan\": expected GB/s, 0 or more");
  EXPECT_EQ(refusal("<topology version=\"2.0\"><object type=\"Machine\"><object type=\"PU\" os_index=\"0\"/></object>\n"
                    "<distances2hetero nbobjs=\"2\" name=\"NVLinkBandwidth\"><indexes>OSDev:1 "
                    "OSDev:2</indexes><u64values>1 2 3</u64values></distances2hetero></topology>"),
            "invalid_argument: x.xml:2: <u64values>: expected 4 numbers, found 3");
}

TEST(HwlocXml, HostileTextsAreRefusedQuickly) {
  std::string deep;
  for (int i = 0; i < 100'000; ++i) deep += "<object type=\"Group\">";
  EXPECT_NE(refusal("<topology version=\"2.0\"><object type=\"Machine\">" + deep).find("expected well-formed XML"),
            std::string::npos);
  for (int i = 0; i < 100'000; ++i) deep += "</object>";
  EXPECT_EQ(refusal("<topology version=\"2.0\"><object type=\"Machine\">" + deep + "</object></topology>"),
            "invalid_argument: x.xml:1: expected at most 128 objects inside of each other");
  EXPECT_NE(
      refusal(machine("<object type=\"Core\" cpuset=\"" + std::string(1 << 20, ',') + "\"/>")).find("expected a set"),
      std::string::npos);
  EXPECT_NE(refusal(machine("<object type=\"PU\" os_index=\"4000000000\"/>")).find("os_index from 0"),
            std::string::npos);
  EXPECT_NE(refusal("<topology version=\"2.0\"><object type=\"Machine\"><object type=\"PU\" "
                    "os_index=\"0\"/></object><distances2 nbobjs=\"4294967295\" name=\"x\"/></topology>")
                .find("expected a number from 0 to 4096"),
            std::string::npos);
}

// Every other bit of a very large machine: quadratic work would show.
TEST(HwlocXml, ManyRangesOfCpus) {
  std::string set;
  for (int i = 0; i < 4096; ++i) set += i ? ",0x55555555" : "0x55555555";
  std::string cores;
  for (int i = 0; i < 50; ++i) cores += "<object type=\"Core\" cpuset=\"" + set + "\"/>";
  const Result<Graph> graph = read_hwloc_xml(machine(cores), "x.xml");
  ASSERT_TRUE(graph.ok()) << graph.status().to_string();
  EXPECT_EQ(graph->all(VertexKind::core).size(), 50u);
}

TEST(HwlocXml, WritingKeepsEverything) {
  for (const char* name : {"hwloc-dual-epyc.xml", "hwloc-one-package.xml", "hwloc-version1.xml",
                           "hwloc-virtual-machine.xml", "hwloc-empty-sets.xml", "hwloc-links-and-tiles.xml"}) {
    const Graph graph = read_data(name);
    const Result<std::string> xml = write_hwloc_xml(graph);
    ASSERT_TRUE(xml.ok()) << name;
    Result<Graph> again = read_hwloc_xml(*xml, graph.source);
    ASSERT_TRUE(again.ok()) << again.status().to_string();
    again->version = graph.version;
    EXPECT_EQ(json::diff(describe(graph), describe(*again)), json::array()) << name;
    ASSERT_EQ(again->links.size(), graph.links.size());
    for (std::size_t i = 0; i < graph.links.size(); ++i) EXPECT_EQ(again->links[i].bandwidth, graph.links[i].bandwidth);
    const Result<std::string> twice = write_hwloc_xml(*again);
    ASSERT_TRUE(twice.ok());
    EXPECT_EQ(read_hwloc_xml(*twice, graph.source)->vertices, again->vertices) << name;
  }
}

TEST(HwlocXml, AGraphThatHwlocCannotHoldIsRefused) {
  EXPECT_EQ(said(write_hwloc_xml(Graph{}).status()),
            "unsupported: hwloc XML: needs a machine as the first vertex");
  Graph graph;
  graph.vertices.resize(3);
  graph.vertices[1].kind = VertexKind::gpu;
  graph.vertices[1].parent = 0;
  graph.vertices[1].name = "GPU 0";
  graph.vertices[2].kind = VertexKind::nic;
  graph.vertices[2].parent = 1;
  graph.vertices[2].name = "eth0";
  EXPECT_EQ(said(write_hwloc_xml(graph).status()), "unsupported: hwloc XML: eth0 is inside of GPU 0, a device");
}

}  // namespace
}  // namespace tutti::topology::test
