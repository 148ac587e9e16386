// The rules of the house, asked of every file of this tree.
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <iterator>
#include <set>
#include "tests/house/rules.h"

namespace tutti::house {
namespace {

namespace fs = std::filesystem;

std::vector<File> read_tree() {
  const fs::path root = TUTTI_SOURCE_DIR;
  const std::set<std::string> rooms = {"include",    "core",   "kernels",   "topology",      "transport",
                                       "algorithms", "record", "comm",      "nccl",          "trainer",
                                       "perf",       "python", "tools",     "tests",         "docs",
                                       "cmake",      "dev",    "README.md", "CMakeLists.txt"};
  std::vector<File> files;
  for (auto entry = fs::recursive_directory_iterator(root); entry != fs::recursive_directory_iterator(); ++entry) {
    const fs::path path = entry->path().lexically_relative(root);
    if (!rooms.contains(path.begin()->string())) {
      entry.disable_recursion_pending();
      continue;
    }
    if (!entry->is_regular_file()) continue;
    std::ifstream stream(entry->path(), std::ios::binary);
    files.push_back({path.generic_string(), {std::istreambuf_iterator<char>(stream), {}}});
  }
  return files;
}

struct Rule {
  const char* name;
  Findings (*check)(const File&);
};

class Tree : public testing::TestWithParam<Rule> {};

TEST_P(Tree, Obeys) {
  const auto files = read_tree();
  ASSERT_GT(files.size(), 20u) << "is " << TUTTI_SOURCE_DIR << " the tree?";
  std::string all;
  for (const File& file : files) {
    for (const std::string& finding : GetParam().check(file)) all += finding + "\n";
  }
  EXPECT_EQ(all, "");
}

INSTANTIATE_TEST_SUITE_P(House, Tree,
                         testing::Values(Rule{"arrows", broken_arrows}, Rule{"guests", foreign_guests},
                                         Rule{"environment", environment_reads}, Rule{"functions", long_functions},
                                         Rule{"files", long_file}, Rule{"comments", no_opening_comment},
                                         Rule{"paths", machine_paths}),
                         [](const auto& rule) { return std::string(rule.param.name); });

}  // namespace
}  // namespace tutti::house
