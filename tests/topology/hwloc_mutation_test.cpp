// Thousands of damaged topologies: bytes flipped, pieces cut, doubled and exchanged, numbers made absurd. Whatever
// comes out, the reader ends, and ends well: a graph that is in order and can be written and read again, or a refusal
// that names the file and a line. The seed is fixed; TUTTI_FUZZ_SECONDS makes it longer and its seed another.
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <random>

#include "tests/topology/expectations.h"
#include "tests/topology/mutation.h"
#include "topology/describe.h"
#include "topology/read.h"

namespace tutti::topology::test {
namespace {

std::vector<std::string> seeds() {
  std::vector<std::string> texts;
  for (const auto& file : files_in(std::filesystem::path(TUTTI_SOURCE_DIR) / "tests/topology/data", ".xml"))
    if (std::string text = read_text(file); text.find("<topology") != std::string::npos)
      texts.push_back(std::move(text));
  if (!corpus().empty())
    for (const auto& file : files_in(corpus() / "hwloc", ".xml"))
      if (std::string text = read_text(file); text.size() < 200'000) texts.push_back(std::move(text));
  return texts;
}

void check(const std::string& text, std::uint64_t seed, int& accepted) {
  const Result<Graph> graph = read_hwloc_xml(text, "x.xml");
  if (!graph.ok()) {
    ASSERT_EQ(graph.status().text().rfind("x.xml:", 0), 0u) << "seed " << seed << ": " << graph.status().to_string();
    ASSERT_GT(std::atoi(graph.status().text().c_str() + 6), 0) << "seed " << seed;
    return;
  }
  ++accepted;
  ASSERT_EQ(disorder(*graph), "") << "seed " << seed;
  ASSERT_FALSE(describe(*graph).empty()) << "seed " << seed;
  const Result<std::string> xml = write_hwloc_xml(*graph);
  ASSERT_TRUE(xml.ok()) << "seed " << seed << ": " << xml.status().to_string();
  const Result<Graph> again = read_hwloc_xml(*xml, "again.xml");
  ASSERT_TRUE(again.ok()) << "seed " << seed << ": " << again.status().to_string();
}

TEST(HwlocMutation, DamagedTextsAreReadOrRefused) {
  const std::vector<std::string> texts = seeds();
  ASSERT_GE(texts.size(), 6u);
  const char* const wanted = std::getenv("TUTTI_FUZZ_SECONDS");
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(wanted ? std::atoi(wanted) : 0);
  std::uint64_t seed = wanted ? std::random_device{}() : 1;
  const auto more = [&](int done) { return wanted ? std::chrono::steady_clock::now() < end : done < 6000; };
  int accepted = 0, done = 0;
  for (; more(done) && !HasFatalFailure(); ++done, ++seed) {
    std::mt19937_64 random(seed);
    check(mutated(texts[random() % texts.size()], texts[random() % texts.size()], random), seed, accepted);
  }
  EXPECT_GT(accepted, done / 16);  // or the damage is not worth its name
  EXPECT_GT(done - accepted, done / 8);
}

}  // namespace
}  // namespace tutti::topology::test
