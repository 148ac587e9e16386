// A program may be compiled against NVIDIA's header and run on this library, or the other way round: both headers say
// the same, and what NVIDIA's library exports, this one does.
#include <gtest/gtest.h>

#include <cstdio>
#include <fstream>
#include <iterator>
#include <regex>
#include <set>
#include <sstream>

#include "tests/nccl/abi.h"

namespace tutti::test {
namespace {

constexpr const char* kHeader = TUTTI_NVIDIA_HEADER;   // "": not here
constexpr const char* kNvidia = TUTTI_NVIDIA_LIBRARY;  // "": not here
constexpr const char* kOurs = TUTTI_NCCL_LIBRARY;
#define NEEDS(path) \
  if (!*(path)) GTEST_SKIP() << "the CUDA toolkit's NCCL is not installed here"

std::string command_output(const std::string& command) {
  std::string text;
  FILE* const pipe = popen(command.c_str(), "r");
  char part[4096];
  for (std::size_t n; pipe && (n = fread(part, 1, sizeof part, pipe)) > 0;) text.append(part, n);
  EXPECT_TRUE(pipe && pclose(pipe) == 0) << command;
  return text;
}

// Names of functions, with T or W for a weak one.
std::map<std::string, char> exports(const std::string& library) {
  std::istringstream lines(command_output("nm -D --defined-only " + library));
  std::map<std::string, char> found;
  std::string address, name;
  for (char kind; lines >> address >> kind >> name;)
    if (kind == 'T' || kind == 'W') found[name] = kind;
  return found;
}

std::set<std::string> names_in(const std::string& text, const std::string& pattern) {
  const std::regex expression(pattern);
  std::set<std::string> found;
  for (auto at = std::sregex_iterator(text.begin(), text.end(), expression); at != std::sregex_iterator(); ++at)
    found.insert((*at)[1]);
  return found;
}

std::string without_comments(const std::string& path) {
  std::ifstream file(path);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  return std::regex_replace(text, std::regex(R"(/\*[^]*?\*/|//[^\n]*)"), " ");
}

TEST(NcclAbi, BothHeadersSayTheSame) {
  NEEDS(kHeader);
  const Abi ours = abi_of_ours(), theirs = abi_of_nvidia();
  EXPECT_GT(theirs.size(), 250u);
  for (const auto& [what, value] : theirs) EXPECT_EQ(ours.at(what), value) << what;
  EXPECT_EQ(ours.size(), theirs.size());
}

// So that one that a later header brings is missed here.
TEST(NcclAbi, TheListHasAllThatTheirHeaderHas) {
  NEEDS(kHeader);
  const std::string text = without_comments(kHeader);
  const Abi ours = abi_of_ours();
  const auto functions = names_in(text, R"(\b(p?nccl[A-Z]\w*)\s*\()");
  const auto macros = names_in(text, R"(#define[ \t]+(NCCL_\w+)[ \t]+[^\s{])");
  const auto values = names_in(text, R"(\b(nccl\w+)\s*=)");
  EXPECT_GE(functions.size(), 80u);
  EXPECT_GE(macros.size(), 18u);
  EXPECT_GE(values.size(), 35u);
  for (const auto& names : {functions, macros, values})
    for (const std::string& name : names) EXPECT_TRUE(ours.count(name) || name.ends_with("_INITIALIZER")) << name;
}

TEST(NcclAbi, TheLibraryExportsWhatTheirsDoes) {
  NEEDS(kNvidia);
  const auto ours = exports(kOurs), theirs = exports(kNvidia);
  EXPECT_GT(theirs.size(), 100u);
  for (const auto& [name, kind] : theirs) {
    const auto at = ours.find(name);
    if (at == ours.end())
      ADD_FAILURE() << name << " is missing";
    else
      EXPECT_EQ(at->second, kind) << name << ": weak or not";
  }
}

TEST(NcclAbi, TheLibraryExportsWhatOurHeadersDeclareAndNothingElse) {
  const auto ours = exports(kOurs);
  for (const auto& [name, type] : abi_of_ours()) {
    const bool function = name.find("nccl") <= 1 && (type.starts_with("F") || type.starts_with("PF"));
    EXPECT_TRUE(!function || ours.count(name)) << name;
  }
  for (const auto& [name, kind] : ours) {
    const bool twin = name.starts_with("pnccl"),
               weak = name.starts_with("nccl") && kind == 'W' && ours.count("p" + name);
    EXPECT_TRUE(twin || weak || name == "ncclResetDebugInitInternal") << name;
  }
  EXPECT_NE(command_output(std::string("readelf -d ") + kOurs).find("Library soname: [libnccl.so.2]"),
            std::string::npos);
}

}  // namespace
}  // namespace tutti::test
