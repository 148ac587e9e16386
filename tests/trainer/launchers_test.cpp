// Launchers that are not ours start the trainer too: torchrun's, Slurm's and Open MPI's environments give the bits of one rank. And what
// a run shows on a terminal.
#include <gtest/gtest.h>
#include "tests/trainer/command.h"
#include "trainer/progress.h"

namespace tutti::trainer::test {
namespace {

const std::string kRun = kSmall + "--steps 3 --deterministic --hash --threads 1 ";

std::string hash_of_one() {
  static const std::string hash = train(kRun).last_after("weights sha256 ");
  return hash;
}

// Two ranks as a launcher starts them: the names that it sets, %r for the rank; a free port is looked for by Python's sockets.
Outcome by_hand(const std::string& names) {
  const Outcome port = shell("/usr/bin/python3 -c 'import socket; s = socket.socket(); s.bind((\"127.0.0.1\", 0)); print(s.getsockname()[1])'");
  std::string line;
  for (int rank = 1; rank >= 0; --rank) {
    std::string mine = names;
    for (const auto& [word, value] : {std::pair{std::string("%r"), std::to_string(rank)}, {"%p", port.text.substr(0, port.text.find('\n'))}}) {
      for (std::size_t at; (at = mine.find(word)) != std::string::npos;) mine.replace(at, word.size(), value);
    }
    line += fmt::format("env TUTTI_PROBE=0 {} timeout 60 {} {} {} ", mine, train_program(), kRun, rank == 1 ? "&" : "; wait");
  }
  return shell(line);
}

TEST(Launchers, TorchrunsNames) {
  ASSERT_EQ(hash_of_one().size(), 64u);
  const Outcome outcome = by_hand("RANK=%r WORLD_SIZE=2 LOCAL_RANK=%r LOCAL_WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=%p");
  EXPECT_TRUE(outcome.says("ranks: 2")) << outcome.text;
  EXPECT_EQ(outcome.last_after("weights sha256 "), hash_of_one()) << outcome.text;
}

TEST(Launchers, SlurmsNames) {
  const Outcome outcome = by_hand("SLURM_PROCID=%r SLURM_NTASKS=2 SLURM_LOCALID=%r SLURM_NTASKS_PER_NODE=2 SLURM_STEP_NODELIST=localhost "
                                  "SLURM_JOB_ID=%p SLURM_STEP_ID=0 MASTER_ADDR=127.0.0.1 MASTER_PORT=%p");
  EXPECT_TRUE(outcome.says("ranks: 2")) << outcome.text;
  EXPECT_EQ(outcome.last_after("weights sha256 "), hash_of_one()) << outcome.text;
}

TEST(Launchers, TorchrunItself) {
  if (shell("torchrun --help").status != 0) GTEST_SKIP() << "no torchrun here (Debian: python3-torch)";
  // -r and -t: PyTorch 1.13's crashes on Python 3.11 without. What the ranks print goes to files too.
  const Folder folder;
  const Outcome outcome = shell(fmt::format("TUTTI_PROBE=0 timeout 100 torchrun --standalone --log_dir {} -r 1 -t 1 --nproc_per_node 2 --no_python {} {}",
                                            folder / "log", train_program(), kRun));
  std::string all = outcome.text;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder / "log")) {
    if (entry.is_regular_file()) all += read_text(entry.path().string());
  }
  EXPECT_NE(all.find("weights sha256 " + hash_of_one()), std::string::npos) << all;
}

TEST(Launchers, Mpirun) {
  if (shell("mpirun --version").text.find("Open MPI") == std::string::npos) GTEST_SKIP() << "no Open MPI here (Debian: openmpi-bin)";
  const Outcome outcome = shell(fmt::format("OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 TUTTI_PROBE=0 timeout 100 mpirun --oversubscribe -n 2 {} {}",
                                            train_program(), kRun));
  EXPECT_TRUE(outcome.says("ranks: 2")) << outcome.text;
  EXPECT_EQ(outcome.last_after("weights sha256 "), hash_of_one()) << outcome.text;
}

TEST(ProgressTest, Bars) {
  EXPECT_EQ(progress_bar(0, 0, 60, 0), "[>                             ] 0 %  0:00 left");
  EXPECT_EQ(progress_bar(0, 30, 60, 15), "[===============>              ] 50 %  0:15 left");
  EXPECT_EQ(progress_bar(20, 30, 60, 3000), "[===============>              ] 50 %  2:30:00 left");
  EXPECT_EQ(progress_bar(0, 60, 60, 15), "[==============================] 100 %  0:00 left");
}

// `script` gives a terminal.
TEST(ProgressTest, IsThereOnATerminalOnly) {
  const std::string line = fmt::format("TUTTI_PROBE=0 {} {}", train_program(), kRun);
  EXPECT_FALSE(shell(line).says("66 %"));
  if (shell("script --version").status != 0) GTEST_SKIP() << "no `script` here (Debian: bsdutils) to make a terminal";
  const Outcome outcome = shell(fmt::format("script -qec '{}' /dev/null", line));
  EXPECT_TRUE(outcome.says("66 %")) << outcome.text;
  EXPECT_TRUE(outcome.says("\r\033[Kweights sha256 " + hash_of_one())) << outcome.text;
}

// Of the time in which communication is under way, the exposed part is one: both are on the line and in the log.
TEST(StepLine, TellsExposedAndAllCommunication) {
  const Folder folder;
  const Outcome outcome = train_on(2, "tcp", kSmall + "--steps 3 --bucket-mb 0 --run " + (folder / "run"));
  ASSERT_EQ(outcome.status, 0) << outcome.text;
  for (const std::string rank : {"0", "1"}) {
    const std::string log = read_text(folder / ("run/rank-" + rank + ".jsonl"));
    const auto figure = [&](const std::string& name) { return std::stod(log.substr(log.rfind("\"" + name + "\":") + name.size() + 3)); };
    EXPECT_GT(figure("exchange_seconds"), 0);
    EXPECT_GT(figure("exposed_seconds"), 0);
    EXPECT_LE(figure("exchange_seconds"), figure("seconds"));
  }
  EXPECT_TRUE(outcome.says(" % of ")) << outcome.text;
}

}  // namespace
}  // namespace tutti::trainer::test
