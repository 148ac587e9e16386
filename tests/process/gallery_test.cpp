// Each cause of the gallery: in time, the right code and culprit on every rank that says something, and the words of
// tests/golden/failures, where one can read what users will read. GALLERY_WRITES=1
// writes what is new there; then look at it.
#include "tests/process/gallery.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <set>

namespace tutti::test {
namespace {

class Gallery : public testing::TestWithParam<Cause> {};

TEST_P(Gallery, EndsInTimeWithTheRightCulpritAndWords) {
  const Cause& cause = GetParam();
  if (const std::string lacks = cause.lacks ? cause.lacks() : ""; !lacks.empty()) GTEST_SKIP() << lacks;
  const auto start = std::chrono::steady_clock::now();
  const std::vector<Status> statuses = cause.run();
  EXPECT_LT(std::chrono::steady_clock::now() - start, cause.limit);
  ASSERT_FALSE(statuses.empty());
  std::set<std::string> said;
  for (const Status& status : statuses) {
    EXPECT_EQ(status.code(), cause.code) << status.to_string();
    if (cause.culprit != kEither && cause.code != Code::ok) {
      EXPECT_EQ(status.culprit(), cause.culprit) << status.to_string();
    }
    said.insert(in_general(status));
  }
  const std::string path = std::string(TUTTI_SOURCE_DIR "/tests/golden/failures/") + cause.name + ".txt";
  std::set<std::string> known;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);)
    if (!line.empty() && line[0] != '#') known.insert(line);
  file.close();
  if (std::getenv("GALLERY_WRITES")) {
    known.insert(said.begin(), said.end());
    std::ofstream out(path);
    out << "# " << cause.injected << '\n';
    for (const std::string& line : known) out << line << '\n';
  }
  for (const std::string& line : said) EXPECT_TRUE(known.count(line)) << "not in " << path << ":\n  " << line;
}

INSTANTIATE_TEST_SUITE_P(Of, Gallery, testing::ValuesIn(causes()), [](const auto& cause) { return cause.param.name; });

}  // namespace
}  // namespace tutti::test
