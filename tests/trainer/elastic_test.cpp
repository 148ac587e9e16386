// Ranks that are killed while they train: restarted, or done without; the weights at the end are the bytes of an undisturbed run.
#include <gtest/gtest.h>
#include <csignal>
#include <iterator>
#include <map>
#include <random>
#include <sstream>
#include "tests/tools/launched.h"
#include "tests/trainer/command.h"

namespace tutti::trainer::test {
namespace {

using tools::Launched;

const std::string kRun = kSmall + "--layers 3 --width 64 --seed 5 --deterministic --hash --threads 1 ";

std::vector<std::string> words_of(const std::string& line) {
  std::istringstream stream(line);
  return {std::istream_iterator<std::string>(stream), {}};
}

std::vector<std::string> job(const std::string& flags, const std::string& train_flags) {
  auto words = words_of("run --no-prefix " + flags);
  words.push_back(train_program());
  for (const std::string& word : words_of(train_flags)) words.push_back(word);
  return words;
}

const tools::LaunchSetup kSetup = {.environment = {{"TUTTI_PROBE", "0"}, {"TUTTI_INIT_TIMEOUT", "60s"}}};

// The ranks: processes called "train" below the launcher's second process.
std::vector<pid_t> ranks_of(pid_t launcher) {
  const auto children = [](pid_t of) {
    std::ifstream file(fmt::format("/proc/{0}/task/{0}/children", of));
    return std::vector<pid_t>(std::istream_iterator<pid_t>(file), {});
  };
  std::vector<pid_t> found;
  for (const pid_t inner : children(launcher)) {
    for (const pid_t rank : children(inner)) {
      std::ifstream name(fmt::format("/proc/{}/comm", rank));
      std::string word;
      if (name >> word && word == "train") found.push_back(rank);
    }
  }
  return found;
}

void kill_one(const Launched& job, std::mt19937& random) {
  const auto ranks = ranks_of(job.pid());
  ASSERT_FALSE(ranks.empty()) << "this kernel shows no /proc/PID/task/PID/children?";
  kill(ranks[random() % ranks.size()], SIGKILL);
}

std::string hash_in(const Launched& job) {
  const std::string word = "weights sha256 ";
  const std::size_t at = job.out().rfind(word);
  return at == std::string::npos ? job.out() + job.err() : job.out().substr(at + word.size(), 64);
}

std::string undisturbed(int steps) {
  static std::map<int, std::string> known;
  std::string& hash = known[steps];
  if (hash.empty()) hash = train(kRun + fmt::format("--steps {}", steps)).last_after("weights sha256 ");
  return hash;
}

std::string step(int i, int of) { return fmt::format("step {}/{}  ", i, of); }

TEST(Elastic, ARankIsKilledAgainAndAgainAndTheBytesAreThoseOfAnUndisturbedRun) {
  constexpr int kSteps = 90;
  ASSERT_EQ(undisturbed(kSteps).size(), 64u);
  Launched run(job("-n 3 --max-restarts 40 --min-ranks 1", kRun + fmt::format("--steps {}", kSteps)), kSetup);
  std::mt19937 random(11);
  int kills = 0;
  for (int i = 5; i < kSteps; i += 9, ++kills) {
    ASSERT_TRUE(run.says(step(i, kSteps), 1)) << run.out() << run.err();
    kill_one(run, random);
  }
  EXPECT_EQ(run.exit_status(), 0) << run.out() << run.err();
  EXPECT_EQ(hash_in(run), undisturbed(kSteps)) << run.err();
  EXPECT_NE(run.err().find("it is started again (restart 2 of 40)"), std::string::npos) << run.err();
  EXPECT_NE(run.out().find("from the memory of rank"), std::string::npos) << run.out();
  EXPECT_TRUE(run.nothing_left());
}

TEST(Elastic, WithoutRestartsTheOthersGoOn) {
  ASSERT_EQ(undisturbed(30).size(), 64u);
  Launched run(job("-n 3 --min-ranks 2", kRun + "--steps 30"), kSetup);
  std::mt19937 random(3);
  ASSERT_TRUE(run.says(step(10, 30), 1)) << run.err();
  kill_one(run, random);
  EXPECT_EQ(run.exit_status(), 0) << run.out() << run.err();
  EXPECT_EQ(hash_in(run), undisturbed(30)) << run.err();
  EXPECT_NE(run.out().find("with 2 ranks, from the memory of rank"), std::string::npos) << run.out();
}

// The shards of the optimizer's state that are lost come from the newest checkpoint; ranks that come in lose nothing.
TEST(Elastic, ZeroGoesBackToTheNewestCheckpoint) {
  for (const int zero : {1, 3}) {
    const Folder folder;
    ASSERT_EQ(undisturbed(40).size(), 64u);
    Launched run(job("-n 3 --max-restarts 5 --min-ranks 2", kRun + fmt::format("--steps 40 --zero {} --run {} --checkpoint-every 7", zero, folder / "run")), kSetup);
    std::mt19937 random(zero);
    ASSERT_TRUE(run.says(step(17, 40), 1)) << run.err();
    kill_one(run, random);
    EXPECT_EQ(run.exit_status(), 0) << run.out() << run.err();
    EXPECT_EQ(hash_in(run), undisturbed(40)) << run.err();
    EXPECT_NE(run.out().find("resuming from"), std::string::npos) << run.out();
    EXPECT_TRUE(std::filesystem::exists(folder / "run/checkpoint-00000040/manifest.json"));
  }
}

TEST(Elastic, ZeroWithoutACheckpointBeginsAnew) {
  ASSERT_EQ(undisturbed(20).size(), 64u);
  Launched run(job("-n 2 --max-restarts 5", kRun + "--steps 20 --zero 2"), kSetup);
  std::mt19937 random(2);
  ASSERT_TRUE(run.says(step(8, 20), 1)) << run.err();
  kill_one(run, random);
  EXPECT_EQ(run.exit_status(), 0) << run.out() << run.err();
  EXPECT_EQ(hash_in(run), undisturbed(20)) << run.err();
  EXPECT_NE(run.out().find("starting anew"), std::string::npos) << run.out();
}

TEST(Elastic, TooFewStopWithACheckpointThatARunGoesOnFrom) {
  const Folder folder;
  ASSERT_EQ(undisturbed(30).size(), 64u);
  const std::string flags = kRun + fmt::format("--steps 30 --run {} --checkpoint-every 100", folder / "run");
  Launched run(job("-n 3 --min-ranks 3", flags), kSetup);
  std::mt19937 random(4);
  ASSERT_TRUE(run.says(step(12, 30), 1)) << run.err();
  kill_one(run, random);
  EXPECT_EQ(run.exit_status(), 75) << run.out() << run.err();
  EXPECT_NE(run.err().find("only 2 of at least 3 ranks are left: stopped; --resume auto goes on from here"), std::string::npos) << run.err();
  EXPECT_NE(run.last_error_line().find("first failure: rank"), std::string::npos) << run.err();
  EXPECT_NE(run.last_error_line().find("SIGKILL"), std::string::npos) << run.err();
  const Outcome next = train(flags + " --resume auto");
  EXPECT_TRUE(next.says("resuming from")) << next.text;
  EXPECT_EQ(next.last_after("weights sha256 "), undisturbed(30)) << next.text;
}

TEST(Elastic, ARankThatDiesBeforeTheOthersHaveMetIsWaitedFor) {
  ASSERT_EQ(undisturbed(6).size(), 64u);
  // The first process of slot 1 ends before it has joined; what it leaves behind tells the second.
  const Folder folder;
  const std::string program = fmt::format("if [ $TUTTI_RANK = 1 ] && mkdir {} 2>/dev/null; then printf 'wait 1 00000000000000ff\\n' >>$TUTTI_ROSTER; "
                                          "kill -KILL $$; fi; exec {} {} --steps 6", folder / "mark", train_program(), kRun);
  std::vector<std::string> words = words_of("run --no-prefix -n 2 --max-restarts 1 -- sh -c");
  words.push_back(program);
  Launched run(words, kSetup);
  EXPECT_EQ(run.exit_status(), 0) << run.out() << run.err();
  EXPECT_EQ(hash_in(run), undisturbed(6)) << run.err();
}

// A mistake that a restart does not heal ends the job at once.
TEST(Elastic, WrongFlagsAreNotTriedAgain) {
  Launched run(job("-n 2 --max-restarts 50", kRun + "--steps 3 --data /nonexistent/text"), kSetup);
  EXPECT_EQ(run.exit_status(), 1);
  EXPECT_NE(run.err().find("/nonexistent/text"), std::string::npos) << run.err();
  EXPECT_EQ(run.err().find("restart 1 of"), std::string::npos) << run.err();
}

}  // namespace
}  // namespace tutti::trainer::test
