#pragma once
// What programs say when something goes wrong, kept in tests/golden/said beside the verdicts of tests/golden/failures,
// so that one can read what users will read. GALLERY_WRITES=1 writes what is new there; then look at it.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <iterator>
#include <regex>
#include <string>

namespace tutti::test {

// Without what depends on the machine, the moment and the run.
inline std::string said_in_general(std::string text) {
  char host[256] = "";
  ::gethostname(host, sizeof host - 1);
  for (std::size_t at = 0; *host && (at = text.find(host, at)) != std::string::npos;)
    text.replace(at, std::char_traits<char>::length(host), "HOST");
  const std::pair<const char*, const char*> kGeneral[] = {
      {R"(pid \d+)", "pid PID"},
      {R"(\b\d+(\.\d+)?(e-\d+)? (s|ms|MiB)\b)", "SO MUCH"},
      {R"(operation \d+)", "operation N"},
      {R"((it|and) has made \d+)", "$1 has made N"},
      {R"(has killed \d+)", "has killed N"},
      {R"(cgroup /\S*)", "cgroup GROUP"},
      {R"(/\S*/(checkpoint-\d+|run)\b)", "FOLDER/$1"},
      {R"(step \d+ of \d+: (sends|receives) chunk \d+ (to|from))", "step N of M: $1 chunk C $2"},
      {R"(\d+ of \d+ bytes)", "N of M bytes"},
  };
  for (const auto& [pattern, word] : kGeneral) text = std::regex_replace(text, std::regex(pattern), word);
  return text;
}

inline void expect_said(const std::string& name, const std::string& injected, const std::string& text) {
  const std::string path = std::string(TUTTI_SOURCE_DIR "/tests/golden/said/") + name + ".txt",
                    said = "# " + injected + "\n" + said_in_general(text) + "\n";
  if (std::getenv("GALLERY_WRITES")) std::ofstream(path) << said;
  std::ifstream file(path);
  const std::string known{std::istreambuf_iterator<char>(file), {}};
  EXPECT_EQ(said, known) << path;
}

}  // namespace tutti::test
