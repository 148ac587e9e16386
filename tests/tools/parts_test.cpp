// The parts of the command that need no process: lines, files of the kernel, texts.
#include <array>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <thread>
#include <unistd.h>
#include "tools/cores.h"
#include "tools/descendants.h"
#include "tools/env.h"
#include "tools/job.h"
#include "tools/line_output.h"
#include "tools/memory_events.h"
#include "tools/outcome_text.h"
#include "tools/remote.h"

namespace tutti::tools {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::EndsWith;
using testing::HasSubstr;
using testing::Not;
namespace fs = std::filesystem;

// A pipe to write into and look at.
class Sink {
 public:
  Sink() { EXPECT_EQ(pipe(ends_.data()), 0); }
  ~Sink() { close(ends_[0]), close(ends_[1]); }
  int fd() const { return ends_[1]; }
  std::string take() {
    std::array<char, 4096> bytes{};
    const ssize_t count = read(ends_[0], bytes.data(), bytes.size());
    return std::string(bytes.data(), static_cast<std::size_t>(std::max<ssize_t>(0, count)));
  }

 private:
  std::array<int, 2> ends_{};
};

TEST(LineOutput, WritesWholeLinesOnly) {
  Sink sink;
  LastLines last;
  LineOutput output(sink.fd(), "> ", last);
  EXPECT_TRUE(output.feed("a"));
  EXPECT_TRUE(output.feed("b\nc\n\nd"));
  EXPECT_EQ(sink.take(), "> ab\n> c\n> \n");
  EXPECT_TRUE(output.finish());
  EXPECT_EQ(sink.take(), "> d\n");
  EXPECT_THAT(last.lines(), ElementsAre("ab", "c", "d"));
}

TEST(LineOutput, KeepsCarriageReturnsOfProgressBars) {
  Sink sink;
  LastLines last;
  LineOutput output(sink.fd(), "> ", last);
  EXPECT_TRUE(output.feed("10%\r20%\r"));
  EXPECT_TRUE(output.feed("\nend\r\n"));
  EXPECT_EQ(sink.take(), "> 10%\r> 20%\r\n> end\r\n");
}

TEST(LineOutput, CutsEndlessLines) {
  Sink sink;
  LastLines last;
  LineOutput output(sink.fd(), "", last);
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(output.feed("x"));
  std::thread reader([&] {      // more than a pipe holds
    std::size_t all = 0;
    while (all < LineOutput::kLongestLine + 1) all += sink.take().size();
  });
  EXPECT_TRUE(output.feed(std::string(LineOutput::kLongestLine, 'x')));
  reader.join();
  EXPECT_TRUE(output.finish());
  EXPECT_EQ(sink.take(), "xxx\n");
}

TEST(LastLines, KeepsTheNewest) {
  LastLines last;
  for (int i = 0; i < 9; ++i) last.add(std::to_string(i));
  last.add("  ");
  EXPECT_THAT(last.lines(), ElementsAre("4", "5", "6", "7", "8"));
}

TEST(Descendants, UnderstandsNamesWithParentheses) {
  EXPECT_EQ(parse_stat("71 (sh) S 3 71 3 0 -1"), std::pair(71, 3));
  EXPECT_EQ(parse_stat("71 (a) S 9 (b) R 4 71"), std::pair(71, 4));
  EXPECT_EQ(parse_stat(""), std::pair(0, 0));
  EXPECT_EQ(parse_stat("71 (sh"), std::pair(0, 0));
}

class KernelFiles : public testing::Test {
 protected:
  KernelFiles() : root_(fs::path(testing::TempDir()) / ("kernel-files-" + std::to_string(getpid()))) {
    fs::create_directories(root_);
  }
  ~KernelFiles() override { fs::remove_all(root_); }
  fs::path put(const std::string& name, const std::string& text) {
    fs::create_directories((root_ / name).parent_path());
    std::ofstream(root_ / name) << text;
    return root_ / name;
  }
  fs::path root_;
};

TEST_F(KernelFiles, MemoryEventsOfVersion2) {
  const auto membership = put("self", "0::/jobs/a\n");
  put("jobs/a/memory.events", "low 0\nhigh 0\nmax 12\noom 3\noom_kill 2\n");
  const auto events = memory_events(membership, root_);
  ASSERT_TRUE(events);
  EXPECT_EQ(events->group, "/jobs/a");
  EXPECT_EQ(events->kills, 2u);
}

TEST_F(KernelFiles, MemoryEventsOfVersion1AndInAContainer) {
  const auto membership = put("self", "9:cpu,cpuacct:/x\n4:memory:/docker/77\n0::/\n");
  EXPECT_FALSE(memory_events(membership, root_));
  put("memory/memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 5\n");
  ASSERT_TRUE(memory_events(membership, root_));
  EXPECT_EQ(memory_events(membership, root_)->kills, 5u);
}

TEST(Memory, VerdictSaysYesNoOrUnknown) {
  const MemoryEvents before{"/a", 2}, after{"/a", 3};
  EXPECT_THAT(memory_verdict(before, after), AllOf(HasSubstr("out of memory"), HasSubstr("1 process")));
  EXPECT_THAT(memory_verdict(before, before),
              AllOf(HasSubstr("not for want of memory"), Not(HasSubstr("out of memory"))));
  EXPECT_THAT(memory_verdict({}, {}), HasSubstr("cannot be seen here"));
}

TEST_F(KernelFiles, QuotaIsTheLeastOfAllAncestors) {
  const auto membership = put("self", "0::/a/b\n");
  EXPECT_EQ(quota_cores(membership, root_), 0);
  put("a/b/cpu.max", "max 100000\n");
  EXPECT_EQ(quota_cores(membership, root_), 0);
  put("a/cpu.max", "150000 100000\n");
  EXPECT_EQ(quota_cores(membership, root_), 2);
  put("a/b/cpu.max", "400000 100000\n");
  EXPECT_EQ(quota_cores(membership, root_), 2);
}

TEST_F(KernelFiles, QuotaOfVersion1) {
  const auto membership = put("self", "9:cpu,cpuacct:/x\n4:memory:/y\n");
  put("cpu/x/cpu.cfs_quota_us", "-1\n");
  put("cpu/x/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(quota_cores(membership, root_), 0);
  put("cpu/x/cpu.cfs_quota_us", "300000\n");
  EXPECT_EQ(quota_cores(membership, root_), 3);
}

TEST(Words, AreQuotedForAShell) {
  EXPECT_EQ(quoted("--lr=0.1"), "--lr=0.1");
  EXPECT_EQ(quoted(""), "''");
  EXPECT_EQ(quoted("a b"), "'a b'");
  EXPECT_EQ(quoted("it's $HOME"), "'it'\\''s $HOME'");
}

TEST(Words, EndingsAndAddresses) {
  EXPECT_EQ(ending_text(7 << 8), "ended with exit status 7");
  EXPECT_EQ(ending_text(SIGABRT), "was killed by SIGABRT (6)");
  EXPECT_EQ(address_text("10.0.0.1", 5), "10.0.0.1:5");
  EXPECT_EQ(address_text("fe80::1", 5), "[fe80::1]:5");
}

TEST(Environment, PythonsBufferingIsTheUsersChoice) {
  EXPECT_THAT(rank_environment({}, 0, {"A=1"}),
              AllOf(testing::Contains("PYTHONUNBUFFERED=1"), testing::Contains("A=1")));
  const auto kept = rank_environment({}, 0, {"PYTHONUNBUFFERED="});
  EXPECT_EQ(std::count(kept.begin(), kept.end(), "PYTHONUNBUFFERED="), 1);
  EXPECT_THAT(kept, Not(testing::Contains("PYTHONUNBUFFERED=1")));
}

TEST(Env, TableShowsValuesButNoSecret) {
  const std::vector<Variable> table = {{"TUTTI_X", "bytes", "64K", "what it does", true},
                                       {"TUTTI_JOB_KEY", "text", "", "a key", false}};
  const auto text = env_table(table, [](const char* name) { return std::string(name) == "TUTTI_X" ? "1M" : "hidden"; });
  EXPECT_THAT(text, AllOf(HasSubstr("TUTTI_X        64K      1M        what it does (same on all ranks)\n"),
                          HasSubstr("(secret)"), Not(HasSubstr("hidden"))));
}

TEST(Env, PageEscapesWhatWouldEndACell) {
  const std::vector<Variable> table = {{"TUTTI_X", "a|b", "a", "c|d", true}, {"TUTTI_Y", "size", "", "e", false}};
  EXPECT_THAT(env_page(table), AllOf(HasSubstr("\n| `TUTTI_X` \\* | `a\\|b` | `a` | c\\|d |\n"),
                                     HasSubstr("\n| `TUTTI_Y` | size |  | e |\n")));
}

TEST(Env, CommittedPageIsThatOfTheTable) {
  std::ifstream file(std::string(TUTTI_SOURCE_DIR) + "/docs/environment.md");
  const std::string page{std::istreambuf_iterator<char>(file), {}};
  EXPECT_TRUE(page == env_page(variables()))
      << "the table of core/config.cpp has changed: build/bin/tutti env --markdown > docs/environment.md";
}

}  // namespace
}  // namespace tutti::tools
