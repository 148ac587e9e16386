// Seeded mutations of our own topologies, and of grammar put together at random: a reader refuses or answers, and never
// crashes. The same number of rounds everywhere; TUTTI_MUTATION_ROUNDS raises it.
#include <cstdlib>
#include <random>

#include <gtest/gtest.h>

#include "tests/topology/expectations.h"
#include "tests/topology/hostile_input.h"
#include "topology/read.h"

namespace tutti::topology::test {
namespace {

int rounds() {
  const char* const set = std::getenv("TUTTI_MUTATION_ROUNDS");
  return set != nullptr ? std::max(1, std::atoi(set)) : 6000;
}

class Mutator {
 public:
  Mutator(unsigned seed, std::vector<std::string> bases, std::vector<std::string> words)
      : random_(seed), bases_(std::move(bases)), words_(std::move(words)) {}

  std::string next() {
    std::string text = bases_[below(bases_.size())];
    for (std::size_t changes = 1 + below(6); changes > 0; --changes) change(text);
    return text;
  }

 private:
  std::size_t below(std::size_t limit) { return limit == 0 ? 0 : random_() % limit; }

  void change(std::string& text) {
    const std::size_t at = below(text.size() + 1), length = std::min(below(40), text.size() - at);
    switch (below(9)) {
      case 0: text.resize(at); break;  // cut
      case 1: text.erase(at, length); break;
      case 2: text.insert(at, text.substr(at, length)); break;  // stutter
      case 3: text.insert(at, words_[below(words_.size())]); break;
      case 4: text.replace(at, length, words_[below(words_.size())]); break;
      case 5:
        if (at < text.size()) text[at] = char(below(256));
        break;
      case 6: swap_lines(text); break;
      case 7: replace_number(text, at); break;
      default: text.insert(at, bases_[below(bases_.size())].substr(0, below(600))); break;  // splice
    }
  }

  void swap_lines(std::string& text) {
    const std::size_t a = text.find('\n', below(text.size() + 1)),
                      b = text.find('\n', a == std::string::npos ? a : a + 1);
    const std::size_t c = b == std::string::npos ? b : text.find('\n', b + 1);
    if (c == std::string::npos) return;
    text = text.substr(0, a) + text.substr(b, c - b) + text.substr(a, b - a) + text.substr(c);
  }

  void replace_number(std::string& text, std::size_t from) {
    const std::size_t at = text.find_first_of("0123456789", from);
    if (at == std::string::npos) return;
    static const std::vector<std::string> kNumbers = {"0",   "-1",   "7", "255", "4294967296", "99999999999999999999",
                                                      "1e9", "0x10", ""};
    text.replace(at, 1, kNumbers[below(kNumbers.size())]);
  }

  std::mt19937 random_;
  std::vector<std::string> bases_, words_;
};

std::vector<std::string> bases(const std::string& extension) {
  std::vector<std::string> texts;
  for (const auto& file : files_in(std::filesystem::path(TUTTI_SOURCE_DIR) / "tests/topology/data", extension))
    texts.push_back(read_text(file));
  return texts;
}

void run(unsigned seed, const std::string& extension, const std::vector<std::string>& words, const TextReader& reader) {
  const std::vector<std::string> texts = bases(extension);
  ASSERT_GT(texts.size(), 3u);
  Mutator mutator(seed, texts, words);
  int answered = 0;
  for (int round = 0; round < rounds(); ++round) {
    const std::string text = mutator.next();
    const std::string broken = broken_promise(reader, text);
    ASSERT_EQ(broken, "") << "round " << round << ":\n" << text;
    answered += reader(text, "again").ok() ? 1 : 0;
  }
  EXPECT_GT(answered, rounds() / 50);  // the mutations reach beyond the first check
}

TEST(Mutation, NcclXml) {
  run(21, ".nccl.xml",
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
      read_nccl_xml);
}

TEST(Mutation, Matrix) {
  run(22, ".txt",
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
      read_matrix);
}

}  // namespace
}  // namespace tutti::topology::test
