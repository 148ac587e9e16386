// program.c, which knows nccl.h alone: as it is, and built for NVIDIA's library with ours preloaded. It says where its
// functions are.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <string>

namespace tutti::test {
namespace {

using ::testing::HasSubstr;

struct Ran {
  int status;
  std::string output;
};

Ran ran(const std::string& command) {
  Ran result{-1, ""};
  FILE* const pipe = popen((command + " 2>&1").c_str(), "r");
  char part[4096];
  for (std::size_t n; pipe && (n = fread(part, 1, sizeof part, pipe)) > 0;) result.output.append(part, n);
  if (pipe) result.status = pclose(pipe);
  return result;
}

const std::string kProgram = TUTTI_NCCL_PROGRAM, kForNvidia = TUTTI_NCCL_PROGRAM_NVIDIA;
const std::string kPreload = "LD_PRELOAD=" TUTTI_NCCL_LIBRARY " ";

// The file, as the program prints it.
void expect_from(const std::string& command, const std::string& file) {
  const Ran where = ran(command + " where");
  EXPECT_EQ(where.status, 0) << where.output;
  ASSERT_TRUE(where.output.starts_with("22809 ") && where.output.ends_with("\n")) << where.output;
  EXPECT_EQ(std::filesystem::canonical(where.output.substr(6, where.output.size() - 7)),
            std::filesystem::canonical(file));
}

class Program : public testing::TestWithParam<const char*> {};

TEST_P(Program, EveryTypeAndOperationOnFourRanks) {
  expect_from(kProgram, TUTTI_NCCL_LIBRARY);
  const Ran all = ran(kProgram + " " + GetParam() + " 4");
  EXPECT_EQ(all.status, 0) << all.output;
  EXPECT_EQ(all.output, "300 cases right on 4 ranks\n");
}

TEST_P(Program, BuiltForNvidiasLibraryRunsWithOursPreloaded) {
  if (kForNvidia.empty()) GTEST_SKIP() << "the CUDA toolkit's NCCL is not installed here";
  expect_from(kForNvidia, TUTTI_NVIDIA_LIBRARY);
  expect_from(kPreload + kForNvidia, TUTTI_NCCL_LIBRARY);
  const Ran all = ran(kPreload + kForNvidia + " " + GetParam() + " 3");
  EXPECT_EQ(all.status, 0) << all.output;
  EXPECT_EQ(all.output, "300 cases right on 3 ranks\n");
}

// A process has two GPUs: two ranks have one each and use each other's memory; of three that are threads two share one, and go through
// the host's.
TEST_P(Program, OnTwinsOfGpus) {
  for (const char* ranks : {"2", "3"}) {
    const Ran all = ran(std::string(TUTTI_NCCL_PROGRAM_TWIN) + " " + GetParam() + " " + ranks);
    EXPECT_EQ(all.status, 0) << all.output;
    EXPECT_EQ(all.output, std::string("300 cases right on ") + ranks + " ranks\n");
  }
}

std::string name_of_mode(const testing::TestParamInfo<const char*>& mode) {
  std::string name = mode.param;
  std::erase(name, '-');
  return name;
}
INSTANTIATE_TEST_SUITE_P(Nccl, Program, testing::Values("processes", "threads", "one-thread"), name_of_mode);

TEST(NcclProgram, VersionSaysWhichLibraryAnswers) {
  const Ran said = ran("NCCL_DEBUG=VERSION " + kProgram + " threads 1");
  EXPECT_EQ(said.status, 0);
  EXPECT_THAT(said.output, HasSubstr("NCCL version 2.28.9: libnccl.so.2 of tutti 0."));
  EXPECT_THAT(said.output, HasSubstr("/nccl/libnccl.so.2"));
}

// Where the ranks meet comes from the environment, as NCCL has it.
TEST(NcclProgram, RanksMeetWhereNcclCommIdSays) {
  const Ran met = ran("NCCL_COMM_ID=@nccl-test-" + std::to_string(getpid()) + " " + kProgram + " processes 2");
  EXPECT_EQ(met.output, "300 cases right on 2 ranks\n");
  const Ran refused = ran("NCCL_COMM_ID=nowhere " + kProgram + " processes 2");
  EXPECT_NE(refused.status, 0);
  EXPECT_THAT(refused.output, HasSubstr("nowhere"));
}

TEST(NcclProgram, CallsDoNotBlockWhereNcclCommBlockingSays) {
  const Ran said = ran("NCCL_COMM_BLOCKING=0 " + kProgram + " threads 1");  // which takes ncclInProgress for a failure
  EXPECT_NE(said.status, 0);
  EXPECT_THAT(said.output, HasSubstr("still in progress"));
}

// A GPU that cannot be used: host memory is served, GPU memory and streams are refused and it is said why; by
// TUTTI_NCCL_HOST=1 nothing is looked for.
TEST(NcclProgram, BesideADriverThatDoesNotWorkHostMemoryIsServed) {
  const std::string beside = "env -u TUTTI_NCCL_HOST LD_LIBRARY_PATH=" TUTTI_PRETENDED_DRIVER " ";
  const Ran said = ran(beside + kProgram + " place");
  EXPECT_THAT(said.output, HasSubstr("device 0, host 5, results 5 5 5 5\n"));
  EXPECT_THAT(said.output, HasSubstr("ncclAllReduce: the buffer 0x10000 is on a GPU, and the communicator has no GPU: "));
  EXPECT_THAT(said.output, HasSubstr("ncclAllReduce: it is for the CUDA stream"));
  EXPECT_THAT(said.output, HasSubstr("ncclMemAlloc: GPU memory is wanted"));
  const Ran host = ran(beside + "TUTTI_NCCL_HOST=1 " + kProgram + " processes 2");
  EXPECT_EQ(host.output, "300 cases right on 2 ranks\n");
}

TEST(NcclProgram, ASettingThatIsNoSwitchIsRefusedByName) {
  const Ran said = ran("TUTTI_NCCL_HOST=perhaps " + kProgram + " threads 1");
  EXPECT_NE(said.status, 0);
  EXPECT_THAT(said.output, HasSubstr("TUTTI_NCCL_HOST=\"perhaps\" is not a switch"));
}

}  // namespace
}  // namespace tutti::test
