// The command line: what it means, and that nothing wrong passes.
#include <gmock/gmock.h>

#include "perf/driver/options.h"

namespace tutti::perf {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

Options good(std::vector<std::string> args) {
  Parsed parsed = parse_options("all_reduce_perf", args);
  EXPECT_TRUE(parsed.options) << parsed.text;
  return parsed.options.value_or(Options{});
}
std::string refused(std::vector<std::string> args) {
  Parsed parsed = parse_options("all_reduce_perf", args);
  EXPECT_FALSE(parsed.options);
  EXPECT_EQ(parsed.status, 2);
  return parsed.text;
}

TEST(Options, TheLineThatPeopleType) {
  const Options o = good({"-b", "8", "-e", "128M", "-f", "2", "-g", "4"});
  EXPECT_EQ(o.processes, 4);
  EXPECT_EQ(o.threads, 1);
  const std::vector<std::size_t> sizes = sizes_of(o);
  EXPECT_EQ(sizes.size(), 25u);
  EXPECT_EQ(sizes.front(), 8u);
  EXPECT_EQ(sizes.back(), 134217728u);
}
TEST(Options, DefaultsAreThoseOfNcclTests) {
  const Options o = good({});
  EXPECT_THAT(sizes_of(o), ElementsAre(33554432u));
  EXPECT_EQ(o.iterations, 20);
  EXPECT_FALSE(o.iterations_said);
  EXPECT_THAT(o.types, ElementsAre(DataType::f32));
  EXPECT_THAT(o.ops, ElementsAre(ReduceOp::sum));
  EXPECT_EQ(o.checks, 1);
}
TEST(Options, ASweepFromZeroByAFactorEnds) {
  EXPECT_THAT(sizes_of(good({"-b", "0", "-e", "64", "-f", "2"})), ElementsAre(0u, 8u, 16u, 32u, 64u));
  EXPECT_THAT(sizes_of(good({"-b", "0", "-e", "1K", "-i", "512"})), ElementsAre(0u, 512u, 1024u));
}
TEST(Options, OneEndOfASweepMovesTheOther) {
  EXPECT_THAT(sizes_of(good({"-b", "1G"})), ElementsAre(1073741824u));
  EXPECT_THAT(sizes_of(good({"-e", "8", "-f", "2"})), ElementsAre(8u));
  EXPECT_THAT(refused({"-b", "2K", "-e", "1K"}), HasSubstr("-b 2048 is above -e 1024"));
}
TEST(Options, AllTypesAndReductions) {
  const Options o = good({"-d", "all", "-o", "all", "-r", "all"});
  EXPECT_EQ(o.types.size(), 12u);
  EXPECT_EQ(o.ops.size(), 6u);
  EXPECT_TRUE(o.all_roots);
}
TEST(Options, EveryTableNameCanBeTyped) {
  for (int i = 0; i < kDataTypeCount; ++i)
    EXPECT_THAT(good({"-d", table_name(DataType(i))}).types, ElementsAre(DataType(i)));
  for (int i = 0; i < kReduceOpCount; ++i)
    EXPECT_THAT(good({"-o", table_name(ReduceOp(i))}).ops, ElementsAre(ReduceOp(i)));
}
TEST(Options, CheckTakesANumberOrAWay) {
  const Options o = good({"-c", "3", "--check", "random"});
  EXPECT_EQ(o.checks, 3);
  EXPECT_EQ(o.check, Check::random);
  EXPECT_THAT(refused({"-c", "maybe"}), HasSubstr("'maybe'"));
}
TEST(Options, TheLastOfARepeatedOptionCounts) { EXPECT_EQ(good({"-n", "5", "-n", "7"}).iterations, 7); }
TEST(Options, LongNamesOfNcclTests) {
  const Options o =
      good({"--minbytes=8", "--maxbytes=8", "--iters", "3", "--warmup_iters", "0", "--output_file", "a.json"});
  EXPECT_EQ(o.min_bytes, 8u);
  EXPECT_EQ(o.iterations, 3);
  EXPECT_EQ(o.warmup, 0);
  EXPECT_EQ(o.json, "a.json");
}
TEST(Options, PlotsOfEarlierRuns) {
  const Options o = good({"--plot", "p.svg", "--plot-add", "a.json,before", "--plot-add", "b.json"});
  ASSERT_EQ(o.plot_add.size(), 2u);
  EXPECT_EQ(o.plot_add[0].file, "a.json");
  EXPECT_EQ(o.plot_add[0].label, "before");
  EXPECT_EQ(o.plot_add[1].label, "");
  EXPECT_THAT(refused({"--plot-add", "a.json"}), HasSubstr("needs --plot"));
}
TEST(Options, WhatHostMemoryLacksIsRefusedButForItsDefault) {
  for (const char* flag : {"-G", "-x", "-D", "-y"}) {
    good({flag, "0"});
    EXPECT_THAT(refused({flag, "1"}), HasSubstr("host memory")) << flag;
  }
  good({"-V", "16"});
  EXPECT_THAT(refused({"-V", "32"}), HasSubstr("host memory"));
  good({"--memory", "host"});
  EXPECT_EQ(good({"--memory", "allocated"}).memory, Memory::allocated);
  EXPECT_EQ(good({"--memory", "cuda", "-R", "0"}).memory, Memory::cuda);
  EXPECT_EQ(good({"-R", "1"}).memory, Memory::allocated);
  EXPECT_THAT(refused({"-R", "1", "--memory", "cuda"}), HasSubstr("leave it out"));
  EXPECT_THAT(refused({"--memory", "cuda", "-R", "1"}), HasSubstr("leave it out"));
  EXPECT_EQ(good({"-R", "0"}).memory, Memory::host);
  EXPECT_THAT(refused({"-R", "2"}), HasSubstr("symmetric"));
  EXPECT_THAT(refused({"--memory", "disk"}), HasSubstr("host, allocated or cuda"));
}
TEST(Options, HelpIsNoError) {
  const Parsed parsed = parse_options("all_reduce_perf", {"-h"});
  EXPECT_FALSE(parsed.options);
  EXPECT_EQ(parsed.status, 0);
  EXPECT_THAT(parsed.text, HasSubstr("--stepfactor"));
}

class Wrong : public testing::TestWithParam<std::vector<std::string>> {};
TEST_P(Wrong, IsRefusedAndNamed) { EXPECT_THAT(refused(GetParam()), HasSubstr(GetParam().back())); }
INSTANTIATE_TEST_SUITE_P(
    Options, Wrong,
    testing::Values(std::vector<std::string>{"--no-such-option"}, std::vector<std::string>{"-d", "flaot"},
                    std::vector<std::string>{"-o", "summ"}, std::vector<std::string>{"-b", "8Q"},
                    std::vector<std::string>{"-b", "-8"}, std::vector<std::string>{"-b", "99999999T"},
                    std::vector<std::string>{"-f", "1"}, std::vector<std::string>{"-i", "0"},
                    std::vector<std::string>{"-n", "0"}, std::vector<std::string>{"-n", "2x"},
                    std::vector<std::string>{"-a", "4"}, std::vector<std::string>{"-z", "4"},
                    std::vector<std::string>{"-g", "0"}, std::vector<std::string>{"-t", "0"},
                    std::vector<std::string>{"-r", "-1"}, std::vector<std::string>{"-C", "2"},
                    std::vector<std::string>{"--min-busbw", "nan"}, std::vector<std::string>{"stray"}));
TEST(Options, AFileNeedsAnEnd) { EXPECT_THAT(refused({"-N", "0", "--json", "x.json"}), HasSubstr("never ends")); }

}  // namespace
}  // namespace tutti::perf
