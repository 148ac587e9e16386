// nvidia-smi and rocm-smi matrices: one small file a peculiarity, expected values read off by hand, and what is
// refused.
#include <gtest/gtest.h>

#include "tests/topology/expectations.h"
#include "topology/answers.h"
#include "topology/describe.h"
#include "topology/matrix_text.h"
#include "topology/read.h"

namespace tutti::topology::test {
namespace {

using nlohmann::json;

Graph graph_of(const std::string& file) {
  const Result<Graph> graph =
      read_matrix(read_text(std::filesystem::path(TUTTI_SOURCE_DIR) / "tests/topology/data" / file), file);
  EXPECT_TRUE(graph.ok()) << graph.status().to_string();
  return graph.ok() ? *graph : Graph();
}

std::string refusal_of(const std::string& text) {
  const Result<Graph> graph = read_matrix(text, "m");
  EXPECT_EQ(graph.status().code(), Code::invalid_argument);
  return graph.status().text();
}

TEST(Matrix, LegendsUnderlinedHeaderAndLineEndsOfWindows) {
  json d = describe(graph_of("legend-underlined-crlf.txt"));
  EXPECT_EQ(d["gpus"], 4);
  EXPECT_EQ(d["nic_names"], json({"mlx5_bond_0", "bnxt_re1"}));
  EXPECT_EQ(d["gpu_numa_affinity"], json({"0", "0", "0", "1"}));
  EXPECT_EQ(d["gpu_cpu_affinity"], json({"0-15", "0-15", "0-15", "16-31"}));
  EXPECT_EQ(d["nearest_nic"], json({{"0", {"mlx5_bond_0"}}, {"1", {"mlx5_bond_0"}}, {"2", {"mlx5_bond_0"}}}));
  EXPECT_EQ(d["nearest_nic_level"], json({{"0", "PXB"}, {"1", "PIX"}, {"2", "NODE"}}));
  EXPECT_EQ(d["no_local_nic"], json({3}));
  EXPECT_EQ(d["nearest_gpu"], json({{"0", {1}}, {"1", {0}}, {"2", {0, 1}}, {"3", json::array()}}));
  EXPECT_EQ(d["closest_level"], "PIX");
  EXPECT_EQ(d["groups"], json({{0, 1}, {2}, {3}}));
  EXPECT_EQ(d["groups_by_level"], json({{"PIX", {{0, 1}, {2}, {3}}}, {"NODE", {{0, 1, 2}, {3}}}}));
  EXPECT_EQ(d["min_sys_label_hops_in_ring"], 2);
  EXPECT_EQ(d["min_cross_socket_hops_in_ring"], 2);
  EXPECT_FALSE(d.contains("truncated"));
}

TEST(Matrix, SquareOfLinksHasNoGroupsAndARingOfLinksOnly) {
  const Graph graph = graph_of("cube-mesh-soc.txt");
  json d = describe(graph);
  EXPECT_FALSE(d.contains("groups"));
  EXPECT_EQ(d["nearest_gpu"], json({{"4", {5}}, {"5", {4}}, {"6", {7}}, {"7", {6}}}));  // NV2 beats NV1
  EXPECT_EQ(d["closest_level"], "LINK");
  EXPECT_EQ(d["min_sys_label_hops_in_ring"], 0);
  EXPECT_EQ(d["ring"], json({4, 5, 7, 6}));
  EXPECT_EQ(d["gpu_socket"], json({0, 0, 1, 1}));  // by the NICs' rows
  EXPECT_EQ(d["min_cross_socket_hops_in_ring"], 2);
  EXPECT_EQ(d["nearest_nic"], json({{"4", {"mlx4_0"}}, {"5", {"mlx4_0"}}, {"6", {"mlx4_1"}}, {"7", {"mlx4_1"}}}));
}

TEST(Matrix, ACutRowIsFilledFromItsMirrorAndNothingIsMadeUp) {
  json d = describe(graph_of("cut-row.txt"));
  EXPECT_EQ(d["truncated"], true);
  EXPECT_EQ(d["nearest_gpu"], json({{"0", {1, 2}}, {"1", {0, 2}}, {"2", {0, 1}}}));
  EXPECT_FALSE(d["nearest_nic"].contains("2"));  // "PH" is not PHB
  EXPECT_EQ(d["gpu_numa_affinity"], json({"0", "0", nullptr}));
  EXPECT_FALSE(d.contains("min_cross_numa_hops_in_ring"));
}

TEST(Matrix, RowsThatAreMissingAreNotGuessed) {
  json d = describe(graph_of("cut-rows.txt"));
  EXPECT_EQ(d["truncated"], true);
  EXPECT_EQ(d["gpus"], 4);
  EXPECT_FALSE(d.contains("groups"));
  EXPECT_EQ(d["nearest_gpu"]["0"], json({1, 2, 3}));
  EXPECT_EQ(d["nearest_gpu"]["1"], json::array());
  EXPECT_EQ(d["gpu_cpu_affinity"], json({"0-7", nullptr, nullptr, nullptr}));
}

TEST(Matrix, RowsNameTheColumnsWhereTheHeaderIsLost) {
  json d = describe(graph_of("lost-header.txt"));
  EXPECT_EQ(d["gpus"], 2);
  EXPECT_EQ(d["nic_names"], json({"mlx5_3"}));
  EXPECT_EQ(d["groups"], json({{0, 1}}));
  EXPECT_EQ(d["no_local_nic"], json({0, 1}));
}

TEST(Matrix, UnknownAndContradictingLabelsAreDistrusted) {
  const Graph graph = graph_of("odd-labels.txt");
  ASSERT_EQ(graph.distrusted.size(), 3u);
  EXPECT_NE(graph.distrusted[0].find("NV4"), std::string::npos);
  EXPECT_NE(graph.distrusted[1].find("WARP"), std::string::npos);
  json d = describe(graph);
  EXPECT_EQ(d["gpu_numa_affinity"], json({"0", "0", "1", "1"}));  // below their title, though a column is empty
  EXPECT_FALSE(d.contains("gpu_cpu_affinity"));
  ASSERT_EQ(graph.links.size(), 1u);
  EXPECT_EQ(graph.links[0].count, 4);  // the fewer of 12 and 4
  EXPECT_FALSE(d.contains("groups"));  // GPU 2 and 3: not known
  EXPECT_EQ(d["groups_by_numa"], json({{0, 1}, {2, 3}}));
}

TEST(Matrix, LinksThatNoGpuHasAreUnknownLabels) {
  const Result<Graph> graph =
      read_matrix("\tGPU0\tGPU1\tGPU2\nGPU0\t X \tNV0\tMX\nGPU1\tNV0\t X \tNV999\nGPU2\tMX\tNV999\t X \n", "m");
  ASSERT_TRUE(graph.ok()) << graph.status().to_string();
  ASSERT_EQ(graph->links.size(), 1u);
  EXPECT_EQ(graph->links[0].count, 1);
  EXPECT_EQ(graph->distrusted.size(), 4u);
}

TEST(Matrix, ANumaNodeIsBelievedAboveSys) {
  const Graph graph = graph_of("sys-in-one-node.txt");
  EXPECT_EQ(graph.distrusted.size(), 1u);
  EXPECT_EQ(describe(graph).at("groups"), json({{0, 1}, {2, 3}}));
  EXPECT_EQ(describe(graph).at("min_cross_numa_hops_in_ring"), 2);
}

TEST(Matrix, TheCpusetOfTheProcessIsNoPlace) {
  const Graph graph = graph_of("cpuset.txt");
  json d = describe(graph);
  EXPECT_EQ(d["gpu_numa_affinity"], json({"0-1", "0-1"}));
  EXPECT_FALSE(d.contains("gpu_numa"));
  EXPECT_FALSE(d.contains("groups_by_cpu_affinity"));
  EXPECT_EQ(graph.distrusted.size(), 3u);
}

TEST(Matrix, RocmTellsLinksHopsAndNumaNodes) {
  const Graph graph = graph_of("rocm-mixed.txt");
  json d = describe(graph);
  EXPECT_EQ(d["nearest_gpu"], json({{"0", {1}}, {"1", {0}}, {"2", {0, 1}}, {"3", json::array()}}));
  EXPECT_EQ(d["gpu_numa_affinity"], json({"0", "0", "-1", "1"}));
  EXPECT_EQ(d["gpu_numa"], json({0, 0, nullptr, 1}));
  ASSERT_EQ(graph.distrusted.size(), 1u);
  EXPECT_NE(graph.distrusted[0].find("-1"), std::string::npos);
}

TEST(Matrix, RefusalsNameTheLineAndWhatWasExpected) {
  EXPECT_EQ(refusal_of("\tGPU0\tGPU1\nGPU0\t X \nGPU1\tSYS\t X \n"),
            "m:2: row GPU0 has 1 labels; expected 2, one for each column");
  EXPECT_EQ(refusal_of("\tGPU0\tGPU1\tCPU Affinity\nGPU0\t X \t0-3\nGPU1\tSYS\t X \t0-3\n"),
            "m:2: row GPU0 has 1 labels; expected 2, one for each column");
  EXPECT_EQ(refusal_of("\tGPU0\tGPU1\nGPU0\t X \tSYS\tSYS\nGPU1\tSYS\t X \n"),
            "m:2: row GPU0 has 1 words behind its 2 labels; expected 0");
  EXPECT_EQ(refusal_of("\tGPU0\tGPU1\nGPU0\tSYS\t X \nGPU1\tSYS\t X \n"),
            "m:2: row GPU0, column GPU0: \"SYS\"; expected X");
  EXPECT_EQ(refusal_of("\tGPU0\tGPU0\nGPU0\t X \tSYS\n"), "m:1: column GPU0 occurs twice; expected each device once");
  EXPECT_EQ(refusal_of("\tGPU0\tGPU1\nGPU0\t X \tSYS\nGPU0\t X \tSYS\n"),
            "m:3: row GPU0 occurs twice; expected each device once");
  EXPECT_EQ(refusal_of("\tGPU0\tGPU1\nGPU0\t X \tSYS\nGPU9\tSYS\t X \n"),
            "m:3: row GPU9; expected one of the header's 2 devices");
  EXPECT_EQ(refusal_of("nvidia-smi: command not found\n").rfind("m:1: no matrix; expected a header", 0), 0u);
  EXPECT_EQ(refusal_of("GPU0 X SYS\n").rfind("m:1: 2 labels and 1 rows, and no header", 0), 0u);
  EXPECT_EQ(refusal_of("== Link Type between two GPUs ==\n GPU0 GPU1\nGPU0 0\nGPU1 XGMI 0\n"),
            "m:3: row GPU0 has 1 cells; expected 2, one for each column");
  EXPECT_EQ(refusal_of("== Link Type between two GPUs ==\n GPU0 GPUx\n"),
            "m:2: column \"GPUx\"; expected GPU and a number");
  EXPECT_EQ(refusal_of("== Hops between two GPUs ==\n GPU0\nGPU0 0\n"),
            "m:1: no table \"Link Type between two GPUs\"; expected one with a row for each GPU");
}

}  // namespace
}  // namespace tutti::topology::test
