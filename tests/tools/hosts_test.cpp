// `tutti run --hosts`, with an `ssh` that runs its command line here: what
// ssh is told, and that the job behaves as one.
#include <csignal>
#include <filesystem>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <iterator>
#include <sys/stat.h>
#include <unistd.h>
#include "tests/tools/launched.h"

namespace tutti::tools {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;
namespace fs = std::filesystem;

class Hosts : public testing::Test {
 protected:
  Hosts() : folder_(fs::path(testing::TempDir()) / ("hosts-" + std::to_string(getpid()))) {
    fs::create_directories(folder_);
    // ssh -o BatchMode=yes HOST COMMAND: as the real one, the environment stays
    // behind, and the command goes through a shell.
    std::ofstream(folder_ / "ssh") << "#!/bin/sh\necho \"$@\" >>" << (folder_ / "log").string()
                                   << "\nexec env -i PATH=\"$PATH\" FAKE_HOST=\"$3\" sh -c \"$4\"\n";
    chmod((folder_ / "ssh").c_str(), 0755);
  }
  ~Hosts() override { fs::remove_all(folder_); }

  std::vector<std::string> on(const std::string& hosts, const std::string& script) const {
    return {"run", "--hosts", hosts, "--master-addr", "127.0.0.1", "-n", "2", "sh", "-c", script};
  }
  LaunchSetup setup(std::vector<std::pair<std::string, std::string>> more = {}) const {
    more.emplace_back("PATH", folder_.string() + ":/usr/bin:/bin");
    return {.environment = more};
  }
  std::string log() const {
    std::ifstream stream(folder_ / "log");
    return {std::istreambuf_iterator<char>(stream), {}};
  }
  fs::path folder_;
};

TEST_F(Hosts, FormOneJob) {
  Launched job(
      on("b1,b2",
         "echo $FAKE_HOST $RANK/$WORLD_SIZE $LOCAL_RANK $NODE_RANK $TUTTI_ORDER $TUTTI_ADDRESS $TUTTI_JOB_KEY"),
      setup({{"TUTTI_JOB_KEY", "s3cret"}, {"TUTTI_ORDER", "canonical"}}));
  EXPECT_EQ(job.exit_status(), 0) << job.err();
  auto lines = job.out_lines();
  std::sort(lines.begin(), lines.end());
  ASSERT_EQ(lines.size(), 4u);
  const char* starts[] = {"[0] b1 0/4 0 0 canonical 127.0.0.1:", "[1] b1 1/4 1 0 canonical 127.0.0.1:",
                          "[2] b2 2/4 0 1 canonical 127.0.0.1:", "[3] b2 3/4 1 1 canonical 127.0.0.1:"};
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_THAT(lines[i], AllOf(StartsWith(starts[i]), testing::EndsWith(" s3cret")));
    EXPECT_EQ(lines[i].substr(lines[i].find("127.")), lines[0].substr(lines[0].find("127.")));
  }
  EXPECT_THAT(log(), AllOf(HasSubstr("-o BatchMode=yes b1 cd "), HasSubstr("-o BatchMode=yes b2 cd "),
                           Not(HasSubstr("s3cret"))));
  EXPECT_TRUE(job.nothing_left());
}

TEST_F(Hosts, FailTogether) {
  Launched job(on("b1,b2", "[ $RANK = 3 ] && { echo broken >&2; exit 9; }; exec sleep 1000"), setup());
  EXPECT_EQ(job.exit_status(), 9);
  EXPECT_THAT(job.last_error_line(), AllOf(StartsWith("tutti run: first failure: rank 3 on "),
                                           HasSubstr("exit status 9 [TUTTI-E909]; its last line: broken")));
  EXPECT_TRUE(job.nothing_left());
}

TEST_F(Hosts, GetSignals) {
  Launched job(on("b1,b2", "trap 'echo got-it; exit 0' USR1; sleep 1000 & echo ready; wait $!"), setup());
  ASSERT_TRUE(job.says("ready", 4)) << job.err();
  job.signal(SIGUSR1);
  EXPECT_TRUE(job.says("got-it", 4));
  EXPECT_EQ(job.exit_status(), 0);
  EXPECT_TRUE(job.nothing_left());
}

TEST_F(Hosts, StopWhenTheLauncherIsKilled) {
  Launched job(on("b1,b2", "setsid sleep 1000 & echo ready; wait"), setup());
  ASSERT_TRUE(job.says("ready", 4)) << job.err();
  job.signal(SIGKILL);
  EXPECT_EQ(job.exit_status(), 128 + SIGKILL);
  EXPECT_TRUE(job.nothing_left());
}

TEST_F(Hosts, LocalhostNeedsNoSsh) {
  Launched job(on("localhost", "echo here"), {.environment = {{"PATH", "/usr/bin:/bin"}}});
  EXPECT_EQ(job.exit_status(), 0) << job.err();
  EXPECT_THAT(job.out(), AllOf(HasSubstr("[0] here\n"), HasSubstr("[1] here\n")));
}

TEST_F(Hosts, WithoutSshTheCommandLinesArePrinted) {
  Launched job({"run", "--hosts", "b1,b2", "--master-port", "2345", "-n", "2", "./train", "--name", "two words"},
               {.environment = {{"PATH", (folder_ / "empty").string()}}});
  EXPECT_EQ(job.exit_status(), 127);
  EXPECT_THAT(
      job.err(),
      AllOf(HasSubstr("TUTTI_JOB_KEY"),
            HasSubstr("on b2: " TUTTI_BINARY_DIR "/bin/tutti run -n 2 --nnodes 2 --node-rank 1 --master-addr b1 "
                      "--master-port 2345 --kill-after 5 --host-names b1,b2 -- ./train --name 'two words'\n")));
}

}  // namespace
}  // namespace tutti::tools
