// The matrices of the corpus: every key of every expect.json.
#include <gtest/gtest.h>

#include "tests/topology/expectations.h"
#include "topology/describe.h"
#include "topology/read.h"

namespace tutti::topology::test {
namespace {

TEST(CorpusMatrix, EveryKeyOfEveryFile) {
  if (corpus().empty())
    GTEST_SKIP() << "no topology corpus: TUTTI_TOPOLOGY_CORPUS names no folder, and ../shared/topology is not beside "
                    "the sources";
  const auto files = files_in(corpus() / "matrix", ".txt");
  ASSERT_FALSE(files.empty());
  for (const auto& file : files) {
    const Result<Graph> graph = read_matrix(read_text(file), file.filename().string());
    ASSERT_TRUE(graph.ok()) << graph.status().to_string();
    const nlohmann::json expected = expectation_of(file);
    ASSERT_TRUE(expected.is_object()) << file;
    EXPECT_GE(expected.size(), 2u) << file;
    for (const std::string& line : differences(*graph, expected)) ADD_FAILURE() << file.filename() << ": " << line;
  }
}

}  // namespace
}  // namespace tutti::topology::test
