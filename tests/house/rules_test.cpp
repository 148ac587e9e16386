// Each rule finds what it is for in a bad example, and only that: a rule that cannot fail guards nothing.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include "tests/house/rules.h"

namespace tutti::house {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

// The file's text as if it were `path`.
Findings arrows(const std::string& path, const std::string& include) {
  return broken_arrows({path, fmt::format("// x\n#include \"{}\"\n", include)});
}
Findings guests(const std::string& path, const std::string& include) {
  return foreign_guests({path, fmt::format("// x\n#include <{}>\n", include)});
}

TEST(Arrows, SiblingsDoNotIncludeEachOther) {
  const std::vector<std::string> siblings = {"kernels", "topology", "transport", "algorithms"};
  for (const auto& from : siblings) {
    for (const auto& to : siblings) {
      const Findings findings = arrows(from + "/a.cpp", to + "/b.h");
      if (from == to) EXPECT_THAT(findings, IsEmpty());
      else EXPECT_THAT(findings, ElementsAre(HasSubstr(from + "/a.cpp:2: broken arrow " + from + "/ -> " + to + "/")));
    }
    EXPECT_THAT(arrows(from + "/a.cpp", "core/log.h"), IsEmpty());
    EXPECT_THAT(arrows(from + "/deep/a.h", "comm/planner.h"), ElementsAre(HasSubstr("-> comm/")));
    EXPECT_THAT(arrows("comm/a.cpp", from + "/b.h"), IsEmpty());
  }
}

TEST(Arrows, CoreIncludesNobody) {
  EXPECT_THAT(arrows("core/a.cpp", "comm/b.h"), ElementsAre(HasSubstr("core/ -> comm/")));
  EXPECT_THAT(arrows("core/a.cpp", "kernels/b.h"), ElementsAre(HasSubstr("core/ -> kernels/")));
  EXPECT_THAT(arrows("core/a.cpp", "core/b.h"), IsEmpty());
}

TEST(Arrows, CustomersSeeThePublicHeadersOnly) {
  EXPECT_THAT(arrows("perf/a.cpp", "core/log.h"), ElementsAre(HasSubstr("perf/ -> core/")));
  EXPECT_THAT(arrows("trainer/a.cpp", "comm/b.h"), ElementsAre(HasSubstr("trainer/ -> comm/")));
  EXPECT_THAT(arrows("perf/a.cpp", "perf/b.h"), IsEmpty());
  EXPECT_THAT(arrows("perf/kernels/a.cpp", "kernels/kernels.h"), IsEmpty());
  EXPECT_THAT(arrows("perf/kernels/a.cpp", "transport/b.h"), ElementsAre(HasSubstr("perf/kernels/ -> transport/")));
  EXPECT_THAT(arrows("tools/a.cpp", "comm/b.h"), IsEmpty());
  EXPECT_THAT(arrows("tools/a.cpp", "trainer/b.h"), ElementsAre(HasSubstr("tools/ -> trainer/")));
  EXPECT_THAT(arrows("include/tutti/a.h", "core/b.h"), ElementsAre(HasSubstr("include/ -> core/")));
}

TEST(Arrows, AnIncludeNamesItsRoom) {
  EXPECT_THAT(arrows("comm/a.cpp", "planner.h"), ElementsAre(HasSubstr("names no room")));
  EXPECT_THAT(broken_arrows({"comm/a.cpp", "#include <vector>\n#include <tutti/status.h>\n"}), IsEmpty());
}

TEST(Guests, StayInTheirRooms) {
  EXPECT_THAT(guests("comm/a.cpp", "hwloc.h"), ElementsAre(HasSubstr("comm/a.cpp:2: <hwloc.h>")));
  EXPECT_THAT(guests("topology/a.cpp", "hwloc.h"), IsEmpty());
  EXPECT_THAT(guests("transport/tcp/a.cpp", "infiniband/verbs.h"), testing::SizeIs(1));
  EXPECT_THAT(guests("transport/rdma/a.cpp", "infiniband/verbs.h"), IsEmpty());
  EXPECT_THAT(guests("comm/planner.cpp", "boost/asio.hpp"), testing::SizeIs(1));
  EXPECT_THAT(guests("comm/bootstrap.cpp", "boost/asio.hpp"), IsEmpty());
  EXPECT_THAT(guests("kernels/reduce.cpp", "cuda_runtime.h"), testing::SizeIs(1));
  EXPECT_THAT(guests("core/a.cpp", "gtest/gtest.h"), testing::SizeIs(1));
  EXPECT_THAT(guests("tests/a.cpp", "gtest/gtest.h"), IsEmpty());
}

TEST(Environment, IsReadInOnePlace) {
  const std::string code = "// getenv in a comment\nauto s = \"getenv\";\nauto v = std::getenv(\"X\");\n";
  EXPECT_THAT(environment_reads({"comm/a.cpp", code}), ElementsAre(HasSubstr("comm/a.cpp:3")));
  EXPECT_THAT(environment_reads({"core/config.cpp", code}), IsEmpty());
  EXPECT_THAT(environment_reads({"tools/a.cpp", "x = secure_getenv(\"Y\");"}), testing::SizeIs(1));
}

std::string function_of(int lines, const std::string& head = "int f(int a)") {
  std::string text = head + " {\n";
  for (int i = 2; i < lines; ++i) text += i % 2 ? "  if (a) { b({1, 2}); }\n" : "  c('{', \"}\");   // {\n";
  return text + "}\n";
}

TEST(Functions, FitOnAScreen) {
  EXPECT_THAT(long_functions({"a.cpp", function_of(kLongestFunction)}), IsEmpty());
  EXPECT_THAT(long_functions({"a.cpp", fmt::format("\n{}", function_of(kLongestFunction + 1))}),
              ElementsAre(HasSubstr("a.cpp:2: a function of 71 lines")));
}

TEST(Functions, AreFoundWhereverTheyStand) {
  for (const std::string head :
       {"template <class T, class = void>\nvoid f(T)", "A::A(int x) : a_(x), b_(2)", "TEST(A, B)",
        "auto f() -> std::vector<int>", "bool operator==(const A& a) const noexcept"}) {
    const std::string text = fmt::format("namespace a {{\nenum class E {{ x, y }};\nclass A : public B {{\n{}}};\n}}\n",
                                         function_of(90, head));
    EXPECT_THAT(long_functions({"a.h", text}), testing::SizeIs(1)) << head;
  }
}

TEST(Functions, AreNotTablesNorClasses) {
  std::string table = "const int kTable[] = {\n", shape = "struct A {\n", space = "namespace b {\n";
  for (int i = 0; i < 100; ++i) {
    table += "  f(1),\n";
    shape += "  int f() { return 1; }\n";
    space += "int g();\n";
  }
  EXPECT_THAT(long_functions({"a.cpp", table + "};\n" + shape + "};\n" + space + "}\n"}), IsEmpty());
}

TEST(Files, AreShort) {
  EXPECT_THAT(long_file({"a.cpp", std::string(kLongestFile - 1, '\n')}), IsEmpty());
  EXPECT_THAT(long_file({"a.cpp", std::string(kLongestFile, '\n')}), testing::SizeIs(1));
}

TEST(Files, OpenWithAComment) {
  EXPECT_THAT(no_opening_comment({"core/a.h", "#pragma once\n// What it is.\n"}), IsEmpty());
  EXPECT_THAT(no_opening_comment({"core/a.h", "#pragma once\n#include <vector>\n// Later.\n"}), testing::SizeIs(1));
  EXPECT_THAT(no_opening_comment({"core/a.cpp", ""}), testing::SizeIs(1));
  EXPECT_THAT(no_opening_comment({"core/a.cpp", "#include \"core/a.h\"\n"}), IsEmpty());      // its other half has it
  EXPECT_THAT(no_opening_comment({"core/a.cpp", "#include <tutti/a.h>\n"}), IsEmpty());
  EXPECT_THAT(no_opening_comment({"core/a.cpp", "#include \"core/b.h\"\n"}), testing::SizeIs(1));
  EXPECT_THAT(no_opening_comment({"dev", "#!/bin/sh\nset -e\n"}), testing::SizeIs(1));
  EXPECT_THAT(no_opening_comment({"tests/CMakeLists.txt", "# Tests.\n"}), IsEmpty());
  EXPECT_THAT(no_opening_comment({"docs/a.md", "text"}), IsEmpty());
}

TEST(Paths, AreOfNoMachine) {
  const std::string slash = "/";
  for (const std::string start : {"work", "home/jane", "root"}) {
    EXPECT_THAT(machine_paths({"a.md", fmt::format("see {0}{1}{0}main\n", slash, start)}), testing::SizeIs(1)) << start;
  }
  EXPECT_THAT(machine_paths({"a.md", "/proc/self /sys/fs /dev/shm /tmp/x doc/root/x framework/main\n"}), IsEmpty());
}

TEST(Lexer, KeepsLinesAndBlanksTheRest) {
  EXPECT_EQ(code_only("a /* {\n} */ b"), "a     \n     b");
  EXPECT_EQ(code_only("x = 1'000; c = '\\'';"), "x = 1'000; c =     ;");
  EXPECT_EQ(code_only("r = R\"x({\n})x\";"), "r =      \n    ;");
  EXPECT_EQ(code_only("#define A { \\\n  {\nb"), std::string(13, ' ') + "\n" + std::string(3, ' ') + "\nb");
}

}  // namespace
}  // namespace tutti::house
