// `tutti run` with real processes: exit statuses, output, environment, signals, failures, and that nothing stays
// behind. Processes that shall wait for ever are `sleep 1000`; nothing here waits by the clock.
#include <algorithm>
#include <arpa/inet.h>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <map>
#include <set>
#include <sstream>
#include <sys/socket.h>
#include <sys/stat.h>
#include <thread>
#include <unistd.h>
#include "tests/tools/launched.h"

namespace tutti::tools {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

std::vector<std::string> shell(std::vector<std::string> flags, const std::string& script) {
  flags.insert(flags.begin(), "run");
  flags.insert(flags.end(), {"sh", "-c", script});
  return flags;
}

std::vector<std::string> sorted(std::vector<std::string> lines) {
  std::sort(lines.begin(), lines.end());
  return lines;
}

TEST(Run, EndsWithZeroWhenAllDo) {
  Launched job(shell({"-n", "3"}, "exit 0"));
  EXPECT_EQ(job.exit_status(), 0);
  EXPECT_EQ(job.out() + job.err(), "");
  EXPECT_TRUE(job.nothing_left());
}

TEST(Run, NamesTheFirstFailureLast) {
  Launched job(shell({"-n", "4"}, "[ $RANK = 2 ] && { echo one; echo 'no such layer' >&2; exit 5; }; exec sleep 1000"));
  EXPECT_EQ(job.exit_status(), 5);
  EXPECT_THAT(job.last_error_line(), AllOf(StartsWith("tutti run: first failure: rank 2 on "), HasSubstr("(pid "),
                                           HasSubstr(" ended with exit status 5 [TUTTI-E909]; its last line: ")));
  EXPECT_THAT(job.err(), HasSubstr("the others were stopped by us: 3 after SIGTERM, 0 by SIGKILL\n"));
  EXPECT_THAT(job.err(), AllOf(HasSubstr("    one\n"), HasSubstr("    no such layer\n")));
  EXPECT_TRUE(job.nothing_left());
}

TEST(Run, GivesASignalsVictimAs128PlusSignal) {
  Launched job(shell({"-n", "2"}, "[ $RANK = 1 ] && kill -KILL $$; exec sleep 1000"));
  EXPECT_EQ(job.exit_status(), 128 + SIGKILL);
  EXPECT_THAT(job.last_error_line(), AllOf(StartsWith("tutti run: first failure: rank 1 on "),
                                           HasSubstr("was killed by SIGKILL (9)"), HasSubstr("memory")));
  Launched crash(shell({"-n", "2"}, "[ $RANK = 0 ] && kill -SEGV $$; exec sleep 1000"));
  EXPECT_EQ(crash.exit_status(), 128 + SIGSEGV);
  EXPECT_THAT(crash.last_error_line(), AllOf(HasSubstr("rank 0"), HasSubstr("SIGSEGV"), Not(HasSubstr("memory"))));
}

TEST(Run, KillsThoseThatDoNotObeySigterm) {
  // Rank 0 leaves when rank 1 has its trap.
  const std::string deaf = testing::TempDir() + "deaf-" + std::to_string(getpid());
  Launched job(shell({"-n", "2", "--kill-after", "0.2"}, "trap '' TERM; if [ $RANK = 0 ]; then until [ -e " + deaf +
                                                             " ]; do sleep 0.01; done; exit 3; fi; : > " + deaf +
                                                             "; while :; do sleep 1000; done"));
  EXPECT_EQ(job.exit_status(), 3);
  EXPECT_THAT(job.err(), HasSubstr("0 after SIGTERM, 1 by SIGKILL\n"));
  EXPECT_TRUE(job.nothing_left());
  unlink(deaf.c_str());
}

TEST(Run, SaysWhyAProgramCannotStart) {
  Launched missing({"run", "-n", "2", "no-such-program-here"});
  EXPECT_EQ(missing.exit_status(), 127);
  EXPECT_EQ(missing.err(), "tutti run: program not found: no-such-program-here [TUTTI-E110]\n");
  Launched text({"run", "-n", "2", TUTTI_SOURCE_DIR "/LICENSE"});
  EXPECT_EQ(text.exit_status(), 126);
  EXPECT_THAT(text.err(), HasSubstr("is not executable"));
}

TEST(Run, SaysWhichInterpreterIsMissing) {
  const std::string script = testing::TempDir() + "no-interpreter-" + std::to_string(getpid());
  std::ofstream(script) << "#!/no/such/interpreter\n";
  chmod(script.c_str(), 0755);
  Launched job({"run", "-n", "2", script});
  EXPECT_EQ(job.exit_status(), 1);
  EXPECT_EQ(job.err(), "tutti run: cannot execute " + script + " for rank 0: No such file or directory [TUTTI-E110]\n");
  EXPECT_TRUE(job.nothing_left());
  unlink(script.c_str());
}

TEST(Run, PrefixesWholeLines) {
  const std::string text(200, 'x');
  Launched job(shell({"-n", "3"}, "i=0; while [ $i -lt 300 ]; do printf '%s' " + text + "; echo; i=$((i+1)); done"));
  ASSERT_EQ(job.exit_status(), 0);
  std::map<std::string, int> counts;
  for (const auto& line : job.out_lines()) ++counts[line];
  EXPECT_THAT(counts,
              ElementsAre(std::pair("[0] " + text, 300), std::pair("[1] " + text, 300), std::pair("[2] " + text, 300)));
}

TEST(Run, KeepsTheTwoStreamsApart) {
  Launched job(shell({"-n", "1"}, "echo to-out; echo to-err >&2; printf unfinished"));
  EXPECT_EQ(job.exit_status(), 0);
  EXPECT_EQ(job.out(), "[0] to-out\n[0] unfinished\n");
  EXPECT_EQ(job.err(), "[0] to-err\n");
}

TEST(Run, LeavesThePrefixOut) {
  Launched job(shell({"-n", "2", "--no-prefix"}, "echo x$RANK"));
  EXPECT_EQ(job.exit_status(), 0);
  EXPECT_THAT(sorted(job.out_lines()), ElementsAre("x0", "x1"));
}

TEST(Run, LeavesTheProgramsArgumentsAlone) {
  Launched job({"run", "-n", "1", "--", "printf", "<%s>", "-n", "7", "--", "--no-prefix", "[1,2]", "a,b", ""});
  EXPECT_EQ(job.exit_status(), 0);
  EXPECT_EQ(job.out(), "[0] <-n><7><--><--no-prefix><[1,2]><a,b><>\n");
}

TEST(Run, GivesStandardInputToRankZero) {
  Launched job({"run", "-n", "2", "cat"}, {.input = "hello\n"});
  EXPECT_EQ(job.exit_status(), 0);
  EXPECT_EQ(job.out(), "[0] hello\n");
}

const std::string kNames =
    "for n in RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE GROUP_RANK NODE_RANK MASTER_ADDR MASTER_PORT "
    "TUTTI_RANK TUTTI_RANK_COUNT TUTTI_LOCAL_RANK TUTTI_LOCAL_RANK_COUNT TUTTI_ADDRESS TUTTI_JOB_KEY; do "
    "eval printf '%s,' \\$$n; done; echo";

TEST(Run, SetsTheNamesOfTorchrunAndTutti) {
  for (const auto& [rank_flag, count_flag, address_flag, port_flag] :
       {std::tuple("--node-rank", "--nproc-per-node", "--master-addr", "--master-port"),
        std::tuple("--node_rank", "--nproc_per_node", "--master_addr", "--master_port")}) {
    Launched job(shell({"--nnodes", "3", "--rdzv-backend", "static", rank_flag, "1", count_flag, "2", address_flag,
                        "10.9.8.7", port_flag, "2345"},
                       kNames),
                 {.environment = {{"TUTTI_JOB_KEY", "k"}, {"RANK", "77"}}});
    EXPECT_EQ(job.exit_status(), 0);
    EXPECT_THAT(sorted(job.out_lines()), ElementsAre("[2] 2,6,0,2,1,1,10.9.8.7,2345,2,6,0,2,10.9.8.7:2345,k,",
                                                     "[3] 3,6,1,2,1,1,10.9.8.7,2345,3,6,1,2,10.9.8.7:2345,k,"));
  }
}

TEST(Run, MakesAFreshKeyForEachJob) {
  std::set<std::string> keys;
  for (int i = 0; i < 2; ++i) {
    Launched job(shell({"-n", "2", "--no-prefix"}, "echo $TUTTI_JOB_KEY"));
    ASSERT_EQ(job.exit_status(), 0);
    ASSERT_EQ(job.out_lines().size(), 2u);
    EXPECT_EQ(job.out_lines()[0], job.out_lines()[1]);
    EXPECT_THAT(job.out_lines()[0], testing::MatchesRegex("[0-9a-f]{64}"));
    keys.insert(job.out_lines()[0]);
  }
  EXPECT_EQ(keys.size(), 2u);
}

TEST(Run, WarnsWithoutAKeyOnSeveralHosts) {
  Launched job(
      shell({"--nnodes", "2", "--node-rank", "1", "--rdzv-backend", "static", "--rdzv-endpoint", "10.9.8.7:2345"},
            "echo key=$TUTTI_JOB_KEY"));
  EXPECT_EQ(job.exit_status(), 0);
  EXPECT_EQ(job.out(), "[1] key=\n");
  EXPECT_THAT(job.err(), HasSubstr("TUTTI_JOB_KEY is not set"));
}

TEST(Run, ChoosesThreadsUnlessTheUserHas) {
  const std::string at_least_the_cores = std::to_string(sysconf(_SC_NPROCESSORS_CONF));
  Launched chosen(shell({"-n", at_least_the_cores, "--no-prefix"}, "[ $RANK = 0 ] && echo $OMP_NUM_THREADS; exit 0"),
                  {.environment = {{"TUTTI_LOG", "info"}}});
  EXPECT_EQ(chosen.exit_status(), 0);
  EXPECT_EQ(chosen.out(), "1\n");
  const auto told = chosen.err().find("OMP_NUM_THREADS=1 for each rank");
  ASSERT_NE(told, std::string::npos) << chosen.err();
  EXPECT_EQ(chosen.err().find("OMP_NUM_THREADS", told + 1), std::string::npos);
  Launched kept(shell({"-n", "1", "--no-prefix"}, "echo $OMP_NUM_THREADS"),
                {.environment = {{"OMP_NUM_THREADS", "11"}}});
  EXPECT_EQ(kept.exit_status(), 0);
  EXPECT_EQ(kept.out(), "11\n");
}

class PassesOn : public testing::TestWithParam<std::pair<const char*, int>> {};
TEST_P(PassesOn, ToAllRanks) {
  const auto [name, number] = GetParam();
  // What the shell leaves behind (its sleep) must be gone too.
  Launched job(
      shell({"-n", "3"}, std::string("trap 'echo got-it; exit 0' ") + name + "; sleep 1000 & echo ready; wait $!"));
  ASSERT_TRUE(job.says("ready", 3)) << job.err();
  job.signal(number);
  EXPECT_TRUE(job.says("got-it", 3)) << job.out() << job.err();
  EXPECT_EQ(job.exit_status(), 0);
  EXPECT_TRUE(job.nothing_left());
}
INSTANTIATE_TEST_SUITE_P(Run, PassesOn,
                         testing::Values(std::pair("INT", SIGINT), std::pair("TERM", SIGTERM), std::pair("HUP", SIGHUP),
                                         std::pair("USR1", SIGUSR1)),
                         [](const auto& signal) { return std::string(signal.param.first); });

// Each rank says which CPUs it may use; together they are what this process may use, and no two share one.
TEST(Run, BindsEachRankToCoresOfItsOwn) {
  if (std::thread::hardware_concurrency() < 2) GTEST_SKIP() << "one CPU here";
  Launched job(
      shell({"-n", "2", "--bind", "core", "--no-prefix"}, "sed -n 's/^Cpus_allowed_list:.//p' /proc/self/status"),
      {.environment = {{"TUTTI_LOG", "info"}}});
  EXPECT_EQ(job.exit_status(), 0) << job.err();
  std::istringstream lines(job.out());
  std::string first, second;
  ASSERT_TRUE(std::getline(lines, first) && std::getline(lines, second)) << job.out();
  EXPECT_NE(first, second);
  EXPECT_THAT(job.err(), HasSubstr("local ranks bound: 0 on core"));
}

TEST(Run, EndsAs128PlusSignalWhenTheSignalEndsTheRanks) {
  Launched job(shell({"-n", "2"}, "echo ready; exec sleep 1000"));
  ASSERT_TRUE(job.says("ready", 2));
  job.signal(SIGINT);
  EXPECT_EQ(job.exit_status(), 128 + SIGINT);
  EXPECT_THAT(job.err(), HasSubstr("SIGINT came and was passed on to all"));
}

TEST(Run, KillsAtTheSecondSignal) {
  Launched job(shell({"-n", "2", "--kill-after", "1000"},
                     "trap 'echo refused' TERM; echo ready; while :; do sleep 1000 & wait $!; done"));
  ASSERT_TRUE(job.says("ready", 2));
  job.signal(SIGTERM);
  ASSERT_TRUE(job.says("refused", 2));
  job.signal(SIGTERM);
  EXPECT_NE(job.exit_status(), -1);
  EXPECT_TRUE(job.nothing_left());
}

// A grandchild in a session of its own is what launchers usually lose.
const std::string kWithGrandchild = "setsid sleep 1000 & echo ready; echo supervisor=$PPID=; wait";

TEST(Orphans, NoneAfterTheLauncherIsKilled) {
  Launched job(shell({"-n", "3", "--kill-after", "0.5"}, kWithGrandchild));
  ASSERT_TRUE(job.says("ready", 3));
  job.signal(SIGKILL);
  EXPECT_EQ(job.exit_status(), 128 + SIGKILL);
  EXPECT_TRUE(job.nothing_left());
}

TEST(Orphans, NoneAfterItsSupervisorIsKilled) {
  Launched job(shell({"-n", "3"}, kWithGrandchild));
  ASSERT_TRUE(job.says("supervisor=", 3));
  ASSERT_TRUE(job.says("=\n", 3));
  const pid_t supervisor = std::stoi(job.out().substr(job.out().find("supervisor=") + 11));
  ASSERT_NE(supervisor, job.pid());
  kill(supervisor, SIGKILL);
  EXPECT_EQ(job.exit_status(), 128 + SIGKILL);
  EXPECT_THAT(job.last_error_line(), HasSubstr("was killed by SIGKILL"));
  EXPECT_TRUE(job.nothing_left());
}

TEST(Orphans, NoneAfterARankIsKilled) {
  Launched job(shell({"-n", "3"}, "setsid sleep 1000 & [ $RANK = 1 ] && kill -KILL $$; wait"));
  EXPECT_EQ(job.exit_status(), 128 + SIGKILL);
  EXPECT_TRUE(job.nothing_left());
}

TEST(Orphans, NoneWhenARankLeavesOneAndSucceeds) {
  Launched job(shell({"-n", "2", "--kill-after", "0.2"}, "(trap '' TERM; setsid sleep 1000) & exit 0"));
  EXPECT_EQ(job.exit_status(), 0);
  EXPECT_TRUE(job.nothing_left());
}

TEST(Orphans, NoneWhenNobodyReadsTheOutput) {
  Launched job({"run", "-n", "2", "yes"});
  ASSERT_TRUE(job.says("[0] y\n[0] y", 1));
  job.close_output();
  EXPECT_EQ(job.exit_status(), 128 + SIGPIPE);
  EXPECT_TRUE(job.nothing_left());
}

TEST(Run, RefusesATakenPort) {
  const int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t bytes = sizeof address;
  ASSERT_EQ(bind(listener, reinterpret_cast<sockaddr*>(&address), bytes), 0);
  ASSERT_EQ(listen(listener, 1), 0);
  ASSERT_EQ(getsockname(listener, reinterpret_cast<sockaddr*>(&address), &bytes), 0);
  const std::string port = std::to_string(ntohs(address.sin_port));
  Launched job({"run", "-n", "2", "--master-port", port, "true"});
  EXPECT_EQ(job.exit_status(), 2);
  EXPECT_EQ(job.err(),
            "tutti run: port " + port + " of 127.0.0.1 is taken: another process listens there [TUTTI-E111]\n");
  close(listener);
}

TEST(Run, RefusesAnAddressOfAnotherHost) {
  Launched job(
      {"run", "-n", "2", "--master-addr", "192.0.2.1", "--master-port", "2345", "true"});  // TEST-NET-1: nobody's
  EXPECT_EQ(job.exit_status(), 2);
  EXPECT_THAT(job.err(), HasSubstr("'192.0.2.1' is not an address of this host"));
}

// As torchrun does with programs that know nothing of tutti::Elastic.
TEST(Run, StartsAllRanksAgainWhenTheProgramTakesNoPart) {
  Launched job(
      shell({"-n", "2", "--max-restarts", "3", "--no-prefix"},
            "[ $TORCHELASTIC_RESTART_COUNT = 2 ] && { echo done; exit 0; }; [ $RANK = 1 ] && exit 4; exec sleep 1000"));
  EXPECT_EQ(job.exit_status(), 0) << job.err();
  EXPECT_EQ(job.out(), "done\ndone\n");
  EXPECT_THAT(job.err(), AllOf(HasSubstr("tutti run: rank 1 (pid "),
                               HasSubstr("ended with exit status 4; all ranks are started again (restart 2 of 3)")));
  EXPECT_TRUE(job.nothing_left());
  Launched in_vain(shell({"-n", "2", "--max-restarts", "1"}, "[ $RANK = 1 ] && exit 4; exec sleep 1000"));
  EXPECT_EQ(in_vain.exit_status(), 4);
  EXPECT_THAT(in_vain.last_error_line(), HasSubstr("first failure: rank 1 on "));
  Launched without(shell({"-n", "2", "--min-ranks", "1"}, "[ $RANK = 1 ] && exit 4; exec sleep 1000"));
  EXPECT_EQ(without.exit_status(), 4);
}

TEST(Run, KeepsALogARankBesideTheStream) {
  const std::string folder = testing::TempDir() + "logs/of/a/job";
  Launched job(shell({"-n", "2", "--log-dir", folder}, "echo out $RANK; echo err $RANK >&2"));
  EXPECT_EQ(job.exit_status(), 0);
  EXPECT_THAT(sorted(job.out_lines()), ElementsAre("[0] out 0", "[1] out 1"));
  for (const char* rank : {"0", "1"}) {
    std::ifstream file(folder + "/rank-" + rank + ".log");
    std::multiset<std::string> lines;
    for (std::string line; std::getline(file, line);) lines.insert(line);
    EXPECT_EQ(lines, (std::multiset<std::string>{std::string("out ") + rank, std::string("err ") + rank}));
  }
  std::filesystem::remove_all(testing::TempDir() + "logs");
  Launched nowhere(shell({"-n", "2", "--log-dir", "/proc/no/such"}, "echo started"));
  EXPECT_EQ(nowhere.exit_status(), 2);
  EXPECT_EQ(nowhere.out(), "");
}

TEST(Run, PrintsTheRankTable) {
  Launched job({"run", "-n", "2", "--table", "true"});
  EXPECT_EQ(job.exit_status(), 0);
  EXPECT_THAT(job.err(), AllOf(HasSubstr(" rank  local rank  host"), HasSubstr("\n    1           1  "),
                               HasSubstr("2 ranks in all")));
}

TEST(Run, HelpAndVersionSucceedAndNothingFails) {
  EXPECT_EQ(Launched({"run", "--help"}).exit_status(), 0);
  EXPECT_EQ(Launched({"version"}).exit_status(), 0);
  EXPECT_EQ(Launched({}).exit_status(), 2);
  EXPECT_EQ(Launched({"nonsense"}).exit_status(), 2);
}

}  // namespace
}  // namespace tutti::tools
