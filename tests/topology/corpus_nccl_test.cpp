// The NCCL and RCCL files of the corpus: every key of every expect.json, and what write_nccl_xml makes of each reads
// back the same.
#include <gtest/gtest.h>

#include "tests/topology/expectations.h"
#include "topology/describe.h"
#include "topology/read.h"

namespace tutti::topology::test {
namespace {

TEST(CorpusNccl, EveryKeyOfEveryFile) {
  if (corpus().empty())
    GTEST_SKIP() << "no topology corpus: TUTTI_TOPOLOGY_CORPUS names no folder, and ../shared/topology is not beside "
                    "the sources";
  const auto files = files_in(corpus() / "nccl", ".xml");
  ASSERT_FALSE(files.empty());
  for (const auto& file : files) {
    const Result<Graph> graph = read_nccl_xml(read_text(file), file.filename().string());
    ASSERT_TRUE(graph.ok()) << graph.status().to_string();
    const nlohmann::json expected = expectation_of(file);
    ASSERT_TRUE(expected.is_object()) << file;
    EXPECT_GT(expected.size(), 3u) << file;
    for (const std::string& line : differences(*graph, expected)) ADD_FAILURE() << file.filename() << ": " << line;
  }
}

// Remarks aside: what was distrusted is not written, so it cannot be distrusted again.
nlohmann::json answers(const Graph& graph) {
  nlohmann::json all = describe(graph);
  all.erase("distrusted");
  all.erase("notes");
  return all;
}

TEST(CorpusNccl, WrittenFilesReadBackToTheSameAnswers) {
  if (corpus().empty())
    GTEST_SKIP() << "no topology corpus: TUTTI_TOPOLOGY_CORPUS names no folder, and ../shared/topology is not beside "
                    "the sources";
  for (const auto& file : files_in(corpus() / "nccl", ".xml")) {
    const Result<Graph> first = read_nccl_xml(read_text(file), file.filename().string());
    ASSERT_TRUE(first.ok());
    const Result<std::string> text = write_nccl_xml(*first);
    ASSERT_TRUE(text.ok()) << text.status().to_string();
    const Result<Graph> second = read_nccl_xml(*text, "written");
    ASSERT_TRUE(second.ok()) << second.status().to_string() << *text;
    EXPECT_EQ(answers(*first), answers(*second))
        << file << nlohmann::json::diff(answers(*first), answers(*second)).dump();
  }
}

// Other forms can be written, too. NCCL's has no word for a NUMA node of several packages: there only the packages are
// lost.
TEST(CorpusNccl, HwlocMachinesWrittenAsNcclXmlKeepTheirAnswers) {
  if (corpus().empty())
    GTEST_SKIP() << "no topology corpus: TUTTI_TOPOLOGY_CORPUS names no folder, and ../shared/topology is not beside "
                    "the sources";
  int compared = 0;
  for (const auto& file : files_in(corpus() / "hwloc", ".xml")) {
    const Result<Graph> first = read_hwloc_xml(read_text(file), file.filename().string());
    if (!first.ok() || first->all(VertexKind::gpu).empty()) continue;
    const Result<std::string> text = write_nccl_xml(*first);
    ASSERT_TRUE(text.ok()) << text.status().to_string();
    const Result<Graph> second = read_nccl_xml(*text, "written");
    ASSERT_TRUE(second.ok()) << second.status().to_string() << *text;
    nlohmann::json a = describe(*first), b = describe(*second);
    for (const char* key :
         {"gpus", "nics", "logical_gpus", "gpu_busid", "gpu_numa", "gpu_socket", "sockets", "nearest_gpu", "groups",
          "groups_by_level", "nearest_nic", "no_local_nic", "nearest_rdma_nic", "ring", "min_cross_socket_hops_in_ring",
          "min_cross_numa_hops_in_ring", "direct_links"})
      EXPECT_EQ(a[key], b[key]) << file << " " << key;
    ++compared;
  }
  EXPECT_GT(compared, 10);
}

}  // namespace
}  // namespace tutti::topology::test
