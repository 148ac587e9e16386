// The NCCL and RCCL files of the corpus: every key of every expect.json, and what write_nccl_xml makes of each reads back the same.
#include <gtest/gtest.h>

#include "tests/topology/expectations.h"
#include "topology/describe.h"
#include "topology/read.h"

namespace tutti::topology::test {
namespace {

TEST(CorpusNccl, EveryKeyOfEveryFile) {
  if (corpus().empty()) GTEST_SKIP() << "no topology corpus: TUTTI_TOPOLOGY_CORPUS names no folder, and ../shared/topology is not beside the sources";
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

}  // namespace
}  // namespace tutti::topology::test
