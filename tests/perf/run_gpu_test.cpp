// The programs on memory of GPUs: on twins of them, as the same sources are linked with those; and what they say where there is none.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

namespace {

using testing::AllOf;
using testing::ContainsRegex;
using testing::HasSubstr;
using testing::Not;

struct Ran {
  int status;
  std::string output;
};

Ran run(const std::string& words) {
  Ran result{-1, ""};
  FILE* const pipe = popen((words + " 2>&1").c_str(), "r");
  char part[4096];
  for (std::size_t n; pipe && (n = fread(part, 1, sizeof part, pipe)) > 0;) result.output.append(part, n);
  if (pipe) result.status = WEXITSTATUS(pclose(pipe));
  return result;
}
std::string twin(const std::string& collective) { return TUTTI_BINARY_DIR "/tests/perf/" + collective + "_perf_twin --memory cuda "; }

class OnTwins : public testing::TestWithParam<const char*> {};

TEST_P(OnTwins, EverySizeIsRight) {
  const Ran ran = run(twin(GetParam()) + "-g 3 -b 1 -e 40000 -f 200 -n 3 -w 1 -c 2 -I 1 -u 1");
  EXPECT_EQ(ran.status, 0) << ran.output;
  EXPECT_THAT(ran.output, AllOf(HasSubstr("2 x a twin of a GPU: collectives by kernels"), HasSubstr("# Out of bounds values : 0 OK")));
  EXPECT_THAT(ran.output, std::string(GetParam()) == "sendrecv" ? HasSubstr("pairs") : HasSubstr("one-shot"));
}
INSTANTIATE_TEST_SUITE_P(Of, OnTwins, testing::Values("all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce", "alltoall", "gather", "scatter", "sendrecv"),
                         [](const auto& test) { return std::string(test.param); });

TEST(OnTwin, RanksThatShareAGpuAndEveryWayToWait) {
  for (const char* how : {"-z 0 -m 3", "-z 1", "-z 2 -m 2", "-z 3 -m 2 -T 100"}) {
    const Ran ran = run(twin("all_reduce") + "-g 1 -t 3 -b 8 -e 8000 -f 1000 -n 4 -d half -o all " + how);
    EXPECT_EQ(ran.status, 0) << how << ": " << ran.output;
    EXPECT_THAT(ran.output, AllOf(HasSubstr("share one GPU"), Not(HasSubstr("one-shot")))) << how;
  }
}

TEST(OnTwin, TheRecordTellsOfTheGpuAndOfTimes) {
  const std::string file = testing::TempDir() + "/tutti_perf_gpu.json";
  const Ran ran = run(twin("all_reduce") + "-g 2 -b 4K -e 4K -n 20 --json " + file);
  EXPECT_EQ(ran.status, 0) << ran.output;
  FILE* const opened = fopen(file.c_str(), "r");
  ASSERT_NE(opened, nullptr);
  const auto run = nlohmann::json::parse(opened);
  fclose(opened);
  std::filesystem::remove(file);
  const auto& row = run["results"][0];
  EXPECT_EQ(row["transport"], "gpu");
  EXPECT_GT(row["out_of_place"]["time_us"], 0);
  EXPECT_LE(row["out_of_place"]["min_us"], row["out_of_place"]["max_us"]);
}

TEST(OnTwin, NoGpuIsOneClearLine) {
  if (std::filesystem::exists("/dev/nvidiactl")) GTEST_SKIP() << "there is a GPU's driver";
  const Ran ran = run(TUTTI_BINARY_DIR "/bin/all_reduce_perf --memory cuda -g 2");
  EXPECT_EQ(ran.status, 1);
  EXPECT_THAT(ran.output, ContainsRegex("^all_reduce_perf: unsupported: (no GPU can be used here: CUDA says .*|this build has no CUDA: .*)\n$"));
}

}  // namespace
