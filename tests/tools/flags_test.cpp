// Flags of `tutti run`: every contradiction is refused by name, and nothing of the program is taken for ours.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include "tests/tools/launched.h"
#include "tools/run.h"

namespace tutti::tools {
namespace {

using testing::HasSubstr;

struct Refusal {
  std::vector<std::string> flags;
  const char* text;
};

class Refused : public testing::TestWithParam<Refusal> {};
TEST_P(Refused, ByName) {
  std::vector<std::string> arguments = GetParam().flags;
  arguments.insert(arguments.begin(), "run");
  arguments.emplace_back("true");
  Launched job(arguments);
  EXPECT_EQ(job.exit_status(), 2);
  EXPECT_THAT(job.err(), HasSubstr(GetParam().text));
  EXPECT_EQ(job.out(), "");
}
INSTANTIATE_TEST_SUITE_P(Flags, Refused, testing::Values(
    Refusal{{"--node-rank", "0"}, "--node-rank has no effect without --nnodes"},
    Refusal{{"--nnodes", "2", "--master-addr", "a", "--master-port", "1"}, "needs --node-rank"},
    Refusal{{"--nnodes", "2", "--node-rank", "2"}, "--node-rank wants 0 to 1 (--nnodes is 2) and got 2"},
    Refusal{{"--nnodes", "2", "--node_rank", "-1"}, "and got -1"},
    Refusal{{"--nnodes", "2", "--node-rank", "1"}, "needs --master-addr and --master-port"},
    Refusal{{"--nnodes", "0"}, "--nnodes wants 1 or more"},
    Refusal{{"--nnodes", "2:1", "--node-rank", "0"}, "--nnodes 2:1 wants 1 <= MIN <= MAX"},
    Refusal{{"--nnodes", "2x"}, "--nnodes"},
    Refusal{{"--rdzv-backend", "etcd"}, "--rdzv-backend wants c10d or static"},
    Refusal{{"--rdzv-backend", "file"}, "which file?"},
    Refusal{{"--rdzv_endpoint", "host"}, "--rdzv-endpoint"},
    Refusal{{"--rdzv-endpoint", "a:1", "--master-addr", "b"}, "say the same: give one"},
    Refusal{{"--rendezvous", "/tmp/x"}, "is where the hosts of --nnodes meet"},
    Refusal{{"--nnodes", "2", "--rendezvous", "/tmp/x", "--master-port", "4"}, "do not go with it"},
    Refusal{{"--max-restarts", "-1"}, "--max-restarts wants 0 or more"},
    Refusal{{"--min-ranks", "0"}, "--min-ranks wants 1 or more"},
    Refusal{{"-n", "2", "--min-ranks", "3"}, "--min-ranks is 3, the job has 2 ranks"},
    Refusal{{"-n", "2", "--gpus-per-rank", "50"}, "wants 100 GPUs, and this host has"},
    Refusal{{"-n", "0"}, "-n wants the number of ranks"},
    Refusal{{"-n", "2x"}, "got '2x'"},
    Refusal{{"--master-port", "65536"}, "--master-port wants 1 to 65535"},
    Refusal{{"--kill-after", "-1"}, "--kill-after wants seconds"},
    Refusal{{"--hosts", "a,b", "--nnodes", "2"}, "do not go with it"},
    Refusal{{"--hosts", "a,b,a"}, "--hosts names a twice"},
    Refusal{{"--hosts", "a,,b"}, "--hosts wants names"},
    Refusal{{"--hosts", "a,-oProxyCommand=x"}, "--hosts wants names"},
    Refusal{{"--bind", "socket"}, "--bind wants auto, none, numa or core and got 'socket'"},
    Refusal{{"--no-such-flag"}, "--no-such-flag"}));

TEST(Flags, NeedAProgram) {
  Launched job({"run", "-n", "2"});
  EXPECT_EQ(job.exit_status(), 2);
  EXPECT_THAT(job.err(), HasSubstr("no program given"));
}

TEST(Flags, ABadSettingIsRefusedBeforeAnythingStarts) {
  Launched job({"run", "-n", "2", "echo", "started"}, {.environment = {{"TUTTI_TIMEOUT", "soon"}}});
  EXPECT_EQ(job.exit_status(), 2);
  EXPECT_THAT(job.err(), HasSubstr("TUTTI_TIMEOUT"));
  EXPECT_EQ(job.out(), "");
}

int begin_of(std::vector<const char*> words) {
  CLI::App app;
  int status = 0;
  const std::vector<std::string> program;
  add_run(app, program, status);
  return program_begin(app, static_cast<int>(words.size()), words.data());
}

TEST(Flags, ARuleOrAVerbThatDoesNotExistIsNamed) {
  Launched job({"run", "-n", "2", "true"}, {.environment = {{"TUTTI_ALGO", "rign"}}});
  EXPECT_EQ(job.exit_status(), 2);
  EXPECT_THAT(job.err(), HasSubstr("no algorithm is called 'rign'"));
  Launched verb({"launch", "-n", "2"});
  EXPECT_EQ(verb.exit_status(), 2);
  EXPECT_THAT(verb.err(), HasSubstr("no command is called 'launch'; there are doctor, env, explain"));
}

TEST(Flags, EndWhereTheProgramBegins) {
  EXPECT_EQ(begin_of({"tutti", "run", "-n", "2", "train", "-n", "3"}), 4);
  EXPECT_EQ(begin_of({"tutti", "run", "-n2", "train"}), 3);
  EXPECT_EQ(begin_of({"tutti", "run", "--nnodes=2", "--no-prefix", "train"}), 4);
  EXPECT_EQ(begin_of({"tutti", "run", "--table", "--", "train"}), 3);
  EXPECT_EQ(begin_of({"tutti", "run", "-n", "2"}), 4);
  EXPECT_EQ(begin_of({"tutti", "run", "-n"}), 3);
  EXPECT_EQ(begin_of({"tutti", "env", "x"}), 3);
}

TEST(Flags, AutoIsTheCores) {
  RunFlags flags;
  flags.local_ranks = "auto";
  EXPECT_EQ(job_from(flags, 6).value().local_ranks, 6);
  flags.hosts = {"a", "b"};
  const Job job = job_from(flags, 6).value();
  EXPECT_EQ(job.rank_count(), 12);
  EXPECT_EQ(job.master_address, "a");
}

}  // namespace
}  // namespace tutti::tools
