// Seeded mutations of our own topologies, and of grammar put together at random: a reader refuses or answers, and never
// crashes. The same number of rounds everywhere; TUTTI_MUTATION_ROUNDS raises it.
#include <cstdlib>

#include <gtest/gtest.h>

#include "tests/topology/expectations.h"
#include "tests/topology/mutator.h"
#include "tests/topology/promises.h"
#include "topology/read.h"

namespace tutti::topology::test {
namespace {

int rounds() {
  const char* const set = std::getenv("TUTTI_MUTATION_ROUNDS");
  return set != nullptr ? std::max(1, std::atoi(set)) : 6000;
}

std::vector<std::string> bases(const std::string& extension) {
  std::vector<std::string> texts;
  for (const auto& file : files_in(std::filesystem::path(TUTTI_SOURCE_DIR) / "tests/topology/data", extension))
    texts.push_back(read_text(file));
  return texts;
}

void run(std::uint64_t seed, const std::vector<std::string>& texts, const std::vector<std::string>& words,
         const TextReader& reader, int rounds) {
  ASSERT_GT(texts.size(), 3u);
  Mutator mutator(seed, texts, words);
  int answered = 0;
  for (int round = 0; round < rounds; ++round) {
    const std::string text = mutator.next();
    const std::string broken = broken_promise(reader, text);
    ASSERT_EQ(broken, "") << "round " << round << ":\n" << text;
    answered += reader(text, "again").ok() ? 1 : 0;
  }
  EXPECT_GT(answered, rounds / 50);            // the mutations reach beyond the first check
  EXPECT_GT(rounds - answered, rounds / 50);   // and are damage
}

TEST(Mutation, HwlocXml) {
  std::vector<std::string> texts;
  for (std::string& text : bases(".xml"))
    if (text.find("<topology") != std::string::npos) texts.push_back(std::move(text));
  if (!corpus().empty())
    for (const auto& file : files_in(corpus() / "hwloc", ".xml"))
      if (std::string text = read_text(file); text.size() < 200'000) texts.push_back(std::move(text));
  run(20, texts, {"<object type=\"Group\" depth=\"99\">", "</object>", "<page_type size=\"0\"/>", "<!--", "\""},
      read_hwloc_xml, rounds());
}

// Few, as each is read by a process of its own.
TEST(Mutation, Synthetic) {
  run(23,
      {"numa:2 pu:4", "package:2 numa:2(memory=1GB) core:4 pu:2",
       "[numa(memory=8GB)] pack:1 l3:2 l2:4 l1d:1 core:1 pu:2", "group:3 pu:2(indexes=0,2,4,1,3,5)"},
      {"numa:", "pu:0", "(", ")", "[", "]", "memory=", "indexes=2*3:1*2", "die:2", " "}, read_synthetic,
      std::max(1, rounds() / 40));
}

TEST(Mutation, NcclXml) {
  run(21, bases(".nccl.xml"),
      {"<pci busid=\"0000:01:00.0\">",
       "</pci>",
       "<cpu numaid=\"1\">",
       "</cpu>",
       "<gpu dev=\"0\" rank=\"1\">",
       "<gpu/>",
       "<net name=\"a\"/>",
       "<nic>",
       "</nic>",
       "<nvlink target=\"0000:01:00.0\" count=\"3\" tclass=\"0x068000\"/>",
       "<!--",
       "-->",
       "\"",
       "&amp;",
       " class=\"0x020000\"",
       " tclass=\"0x068001\"",
       "<![CDATA[",
       " affinity=\"ffffffff,ffffffff\"",
       " tutti_socket_index=\"2\"",
       " host_hash=\"0x7\""},
      read_nccl_xml, rounds());
}

TEST(Mutation, Matrix) {
  run(22, bases(".txt"),
      {"GPU0",
       "GPU1",
       "GPU99999999999",
       "X",
       "NV4",
       "NV",
       "NV99999",
       "SYS",
       "SOC",
       "PIX",
       "N/A",
       "CPU Affinity",
       "NUMA Affinity",
       "GPU NUMA ID",
       "Legend:",
       "NIC0: mlx5_0",
       "\n",
       "\t",
       "\r\n",
       "0-3",
       "3-0",
       "0-99999999",
       "XGMI",
       "PCIE",
       "== Link Type between two GPUs ==\n",
       "GPU[0]\t: (Topology) Numa Affinity: 1\n",
       "\x1b[4m",
       "\x1b["},
      read_matrix, rounds());
}

}  // namespace
}  // namespace tutti::topology::test
