// A signal asks a process where its ranks stand: they say who waits for whom, and nothing is disturbed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <csignal>
#include <fstream>
#include <functional>
#include <iterator>
#include <thread>

#include "tests/process/scenes.h"
#include "tests/process/world.h"
#include "tests/said.h"

namespace tutti::test {
namespace {

using testing::HasSubstr;
using testing::Not;
using namespace std::chrono_literals;

// What has come on stderr since it is captured, in a file.
std::string so_far() {
  std::ifstream file("/proc/self/fd/2");
  return {std::istreambuf_iterator<char>(file), {}};
}

// Its report; "": none.
std::string of_rank(int rank, const std::string& said) {
  const auto begin = said.find("warning: asked by a signal: rank " + std::to_string(rank) + " (");
  if (begin == std::string::npos) return "";
  std::string text = said.substr(begin, said.find("\ntutti ", begin) - begin);
  while (text.ends_with('\n')) text.pop_back();
  return text;
}

// Rank 1 stays away from an all_reduce that the others have begun, while the
// signal comes and until `heard`. What was said.
std::string asked_while_rank_1_is_away(int signal, const Settings& settings, const std::function<bool()>& heard) {
  testing::internal::CaptureStderr();
  std::atomic<int> begun{0};
  const Statuses ended = ranks(3, settings, [&](Communicator& comm) {
    float x = 1;
    if (const Status status = comm.barrier().wait(); !status.ok()) return status;
    if (comm.rank() == 1) {
      while (begun < 2) std::this_thread::yield();
      ::raise(signal);
      for (const auto end = std::chrono::steady_clock::now() + 30s; !heard() && std::chrono::steady_clock::now() < end;)
        std::this_thread::sleep_for(10ms);
    }
    Work work = comm.all_reduce({&x, &x, 1});
    ++begun;
    return work.wait();
  });
  for (const Status& status : ended) EXPECT_TRUE(status.ok()) << status.to_string();
  return testing::internal::GetCapturedStderr();
}

bool all_have_told() {
  const std::string said = so_far();
  return !of_rank(0, said).empty() && !of_rank(1, said).empty() && !of_rank(2, said).empty();
}

TEST(Inquiry, RanksSayWhoWaitsForWhom) {
  const std::string said = asked_while_rank_1_is_away(SIGUSR1, {{"TUTTI_TRANSPORT", "tcp"}}, all_have_told);
  for (const int rank : {0, 2}) {
    EXPECT_THAT(of_rank(rank, said), HasSubstr("rank 1 (")) << said;
    EXPECT_THAT(of_rank(rank, said), HasSubstr("has not made the call")) << said;
  }
  EXPECT_THAT(of_rank(1, said), HasSubstr("has nothing pending")) << said;
  // Where the others stand depends on the moment.
  const std::string waits = of_rank(0, said);
  const auto two_lines = waits.find('\n', waits.find('\n') + 1);
  expect_said("asked_by_a_signal",
              "SIGUSR1 comes while ranks 0 and 2 wait for rank 1: what rank 0 says first, and rank 1",
              waits.substr(0, two_lines) + "\n" + of_rank(1, said));
}

TEST(Inquiry, BySignalThatWasAskedFor) {
  EXPECT_THAT(asked_while_rank_1_is_away(SIGUSR2, {{"TUTTI_REPORT_SIGNAL", "USR2"}}, all_have_told),
              HasSubstr("has not made the call"));
}

std::atomic<int> g_taken{0};

TEST(Inquiry, AHandlerOfTheProgramStays) {
  std::signal(SIGUSR1, [](int) { ++g_taken; });
  EXPECT_THAT(asked_while_rank_1_is_away(SIGUSR1, {}, [] { return g_taken > 0; }), Not(HasSubstr("asked by a signal")));
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
