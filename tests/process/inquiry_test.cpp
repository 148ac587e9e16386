// A signal asks a process where its ranks stand: they say who waits for whom, and nothing is disturbed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <csignal>
#include <thread>

#include "tests/process/scenes.h"
#include "tests/process/world.h"
#include "tests/said.h"

namespace tutti::test {
namespace {

using testing::HasSubstr;
using testing::Not;
using namespace std::chrono_literals;

// What comes on stderr while it lives.
class Heard {
 public:
  Heard() { testing::internal::CaptureStderr(); }
  std::string end() { return testing::internal::GetCapturedStderr(); }
};

// Rank 1 stays away until `enough`; the others wait in an all_reduce. What was said, and how all have ended.
std::string asked_while_rank_1_is_away(int signal, const Settings& settings) {
  Heard heard;
  std::atomic<int> waiting{0};
  const Statuses ended = ranks(3, settings, [&](Communicator& comm) {
    if (const Status status = comm.barrier().wait(); !status.ok()) return status;
    if (comm.rank() == 1) {
      while (waiting < 2) std::this_thread::yield();
      std::this_thread::sleep_for(500ms);      // the others have begun to wait, for long enough that it shows
      ::raise(signal);
      std::this_thread::sleep_for(2s);
      return reduce(comm, 10);
    }
    ++waiting;
    return reduce(comm, 10);
  });
  const std::string said = heard.end();
  for (const Status& status : ended) EXPECT_TRUE(status.ok()) << status.to_string();
  return said;
}

std::string of_rank(int rank, const std::string& said) {
  const std::string mark = "tutti [rank " + std::to_string(rank) + "] warning: asked by a signal: ";
  const auto begin = said.find(mark);
  if (begin == std::string::npos) return "";
  std::string text = said.substr(begin, said.find("\ntutti ", begin) - begin);
  while (text.ends_with('\n')) text.pop_back();
  return text;
}

TEST(Inquiry, RanksSayWhoWaitsForWhom) {
  const std::string said = asked_while_rank_1_is_away(SIGUSR1, {{"TUTTI_TRANSPORT", "tcp"}, {"TUTTI_ALGO", "ring"}});
  for (const int rank : {0, 2}) {
    EXPECT_THAT(of_rank(rank, said), HasSubstr("rank 1 (")) << said;
    EXPECT_THAT(of_rank(rank, said), HasSubstr("has not made the call")) << said;
  }
  EXPECT_THAT(of_rank(1, said), HasSubstr("has nothing pending")) << said;
  expect_said("asked_by_a_signal", "SIGUSR1 comes while ranks 0 and 2 wait for rank 1; of rank 0, then of rank 1", of_rank(0, said) + "\n" + of_rank(1, said));
}

TEST(Inquiry, BySignalThatWasAskedFor) {
  EXPECT_THAT(asked_while_rank_1_is_away(SIGUSR2, {{"TUTTI_REPORT_SIGNAL", "USR2"}}), HasSubstr("has not made the call"));
}

std::atomic<int> g_taken{0};

TEST(Inquiry, AHandlerOfTheProgramStays) {
  std::signal(SIGUSR1, [](int) { ++g_taken; });
  EXPECT_THAT(asked_while_rank_1_is_away(SIGUSR1, {}), Not(HasSubstr("asked by a signal")));
  EXPECT_EQ(g_taken, 1);
  std::signal(SIGUSR1, SIG_DFL);
}

TEST(Inquiry, LeavesTheSignalAsItWas) {
  const auto handler = [] {
    struct sigaction now{};
    ::sigaction(SIGUSR1, nullptr, &now);
    return now.sa_handler;
  };
  {
    World world(2);
    EXPECT_NE(handler(), SIG_DFL);
  }
  EXPECT_EQ(handler(), SIG_DFL);
  {
    World world(2, {{"TUTTI_REPORT_SIGNAL", "0"}});
    EXPECT_EQ(handler(), SIG_DFL);
  }
  const auto refused = with_setting("TUTTI_REPORT_SIGNAL", "HUP");
  EXPECT_EQ(refused[0].code(), Code::invalid_argument);
  EXPECT_THAT(refused[0].text(), HasSubstr("TUTTI_REPORT_SIGNAL=HUP: want USR1, USR2, or 0"));
}

}  // namespace
}  // namespace tutti::test
