// What goes wrong outside the arguments: ranks killed, stopped, absent or late, aborts, early ends, and what stays
// behind.
#include <gtest/gtest.h>

#include <atomic>
#include <barrier>
#include <chrono>
#include <csignal>
#include <fstream>
#include <thread>

#include "tests/process/calls.h"
#include "tests/process/own_process.h"
#include "tests/process/world.h"

namespace tutti::test {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;
using std::chrono::seconds;

// All_reduces for ever; ends with the first failure.
Status reduce_until_failure(Communicator& comm, std::size_t count, std::atomic<int>* rounds = nullptr) {
  std::vector<float> x(count, 1), y(count);
  while (true) {
    const Status status = comm.all_reduce({x.data(), y.data(), count}).wait();
    if (!status.ok()) return status;
    if (rounds) ++*rounds;
  }
}

int reduce_in_child(int rank, int n, const std::string& address, std::size_t count, const Settings& settings) {
  const Environment environment(settings);
  Communicator comm = joined(rank, n, address);
  return reduce_until_failure(comm, count).ok() ? 1 : 0;
}

// Rank 0 is a process that gets `signal` after some rounds; all the others are here. Returns when all have their
// verdict.
void lose_rank_zero(int signal, std::size_t count, const Settings& settings, Code wanted, Clock::duration limit) {
  constexpr int kRanks = 4;
  const std::string address = fresh_address();
  Child victim([&] { return reduce_in_child(0, kRanks, address, count, settings); });
  World world(kRanks, 1, address, settings);
  std::atomic<int> rounds{0};
  std::atomic<Clock::duration::rep> signalled{0};
  std::thread killer([&] {
    while (rounds < 30) std::this_thread::yield();
    signalled = Clock::now().time_since_epoch().count();
    victim.signal(signal);
  });
  world.run([&](Communicator& comm) {
    const Status status = reduce_until_failure(comm, count, &rounds);
    const auto took = Clock::now().time_since_epoch() - Clock::duration(signalled.load());
    EXPECT_EQ(status.code(), wanted) << status.to_string();
    EXPECT_EQ(status.culprit(), 0) << status.to_string();
    EXPECT_NE(status.text().find("rank 0"), std::string::npos) << status.text();
    EXPECT_LT(took, limit) << std::chrono::duration<double>(took).count() << " s, " << status.to_string();
    EXPECT_EQ(comm.barrier().wait(), status) << "the first cause stays";
  });
  killer.join();
}

class Lost : public testing::TestWithParam<const char*> {};

TEST_P(Lost, AKilledRankIsNamedWithinTwoSeconds) {
  for (std::size_t count : {1, 5000, 3000000})
    lose_rank_zero(SIGKILL, count, {{"TUTTI_TRANSPORT", GetParam()}}, Code::peer_lost, seconds(2));
}

TEST_P(Lost, AStoppedRankIsNamedAfterTheTimeout) {
  for (std::size_t count : {1, 1000000})
    lose_rank_zero(SIGSTOP, count,
                   {{"TUTTI_TRANSPORT", GetParam()}, {"TUTTI_TIMEOUT", "2s"}, {"TUTTI_ABSENT_TIMEOUT", "2s"}},
                   Code::timeout, seconds(6));
}

TEST_P(Lost, AbortFromAnotherThreadEndsWaitsEverywhere) {
  World world(3, {{"TUTTI_TRANSPORT", GetParam()}});
  std::barrier met(3);                       // an abort may overtake a barrier's last message
  world.run([&met](Communicator& comm) {
    EXPECT_TRUE(comm.barrier().wait().ok());
    met.arrive_and_wait();
    std::vector<float> x(1000, 1);
    if (comm.rank() == 2) {
      std::thread([&] { comm.abort("the test says so"); }).join();
    }
    const Status status =
        comm.rank() == 2 ? comm.barrier().wait() : comm.all_reduce({x.data(), x.data(), x.size()}).wait();
    EXPECT_EQ(status.code(), Code::aborted) << status.to_string();
    EXPECT_NE(status.text().find("the test says so"), std::string::npos) << status.text();
    EXPECT_EQ(status.culprit(), 2);
  });
}

TEST_P(Lost, AbortInTheMiddleOfAWait) {
  World world(2, {{"TUTTI_TRANSPORT", GetParam()}});
  float x = 1, y = 0;
  Work work = world[0].all_reduce({&x, &y, 1});  // rank 1 never comes
  std::atomic<bool> waits{false};
  std::thread waiter([&] {
    waits = true;
    EXPECT_EQ(work.wait().code(), Code::aborted);
  });
  while (!waits) std::this_thread::yield();
  EXPECT_FALSE(work.wait_for(milliseconds(20)));
  const auto start = Clock::now();
  world[0].abort("enough");
  waiter.join();
  EXPECT_LT(Clock::now() - start, seconds(1));
  Status status = world[1].barrier().wait();
  EXPECT_EQ(status.code(), Code::aborted) << status.to_string();
}

TEST_P(Lost, DestroyWithPendingOperationsIsQuick) {
  World world(3, {{"TUTTI_TRANSPORT", GetParam()}});
  world.run([](Communicator& comm) { ASSERT_TRUE(comm.barrier().wait().ok()); });
  std::vector<float> x(100000, 1), y(100000);
  std::vector<Work> works;
  for (int i = 0; i < 5; ++i) works.push_back(world[0].all_reduce({x.data(), y.data(), x.size()}));
  works.push_back(world[0].recv({x.data(), 1, DataType::f32, 1}));
  const auto start = Clock::now();
  world[0].destroy();
  EXPECT_LT(Clock::now() - start, seconds(1));
  for (Work& work : works) EXPECT_EQ(work.wait().code(), Code::aborted);
  const auto limited = Clock::now();
  std::vector<float> z(10);
  Work other = world[1].all_reduce({z.data(), z.data(), z.size()});
  world[1].destroy(milliseconds(100));
  EXPECT_LT(Clock::now() - limited, seconds(2));
  EXPECT_FALSE(other.wait().ok());
}

// A rank whose last operation is over leaves; another one makes that call only when it has seen it go.
TEST_P(Lost, WhatARankSentBeforeItLeftArrives) {
  const Settings settings = {{"TUTTI_TRANSPORT", GetParam()}};
  const std::string address = fresh_address();
  Child leaver([&] {
    Environment environment(settings);
    Communicator comm = joined(0, 3, address);
    const std::vector<float> gift(1000, 7);
    const bool sent = comm.barrier().wait().ok() && comm.send({gift.data(), gift.size(), DataType::f32, 1}).wait().ok();
    comm.destroy();
    return sent ? 0 : 1;
  });
  World world(3, 1, address, settings);
  std::atomic<bool> gone{false};
  world.run([&](Communicator& comm) {
    ASSERT_TRUE(comm.barrier().wait().ok());
    float x = 3;
    if (comm.rank() == 2) {
      gone.wait(false);
      EXPECT_EQ(comm.send({&x, 1, DataType::f32, 1}).wait(), Status());
      return;
    }
    Work other = comm.recv({&x, 1, DataType::f32, 2});
    EXPECT_EQ(leaver.exit_code(), 0);
    EXPECT_FALSE(other.wait_for(milliseconds(300))) << "it looks after the links meanwhile";
    gone = true;
    gone.notify_all();
    EXPECT_EQ(other.wait(), Status());
    std::vector<float> gift(1000);
    EXPECT_EQ(comm.recv({gift.data(), gift.size(), DataType::f32, 0}).wait(), Status());
    EXPECT_EQ(gift, std::vector<float>(1000, 7));
    const Status more = comm.recv({gift.data(), 1, DataType::f32, 0}).wait();
    EXPECT_EQ(more.code(), Code::peer_lost) << more.to_string();
    EXPECT_EQ(more.culprit(), 0);
  });
}

INSTANTIATE_TEST_SUITE_P(Wires, Lost, testing::Values("shm", "tcp"));

TEST(Late, ARankThatComesLaterThanTheTimeoutIsNotAFailure) {
  World world(2, {{"TUTTI_TIMEOUT", "500ms"}});
  std::atomic<bool> come{false};
  world.run([&](Communicator& comm) {
    ASSERT_TRUE(comm.barrier().wait().ok());
    if (comm.rank() == 1) come.wait(false);
    float x = 1, y = 0;
    Work work = comm.all_reduce({&x, &y, 1});
    if (comm.rank() == 0) {
      EXPECT_FALSE(work.wait_for(milliseconds(1500))) << work.status().to_string();
      come = true;
      come.notify_all();
    }
    EXPECT_EQ(work.wait(), Status());
    EXPECT_EQ(y, 2);
  });
}

TEST(Late, ARankThatStaysAwayLongerThanAllowedIsNamed) {
  World world(3, {{"TUTTI_ABSENT_TIMEOUT", "1s"}, {"TUTTI_TIMEOUT", "0"}});
  world.run([](Communicator& comm) {
    ASSERT_TRUE(comm.barrier().wait().ok());
    if (comm.rank() == 1) return;
    float x = 1, y = 0;
    Work work = comm.all_reduce({&x, &y, 1});
    ASSERT_TRUE(work.wait_for(seconds(10)));
    EXPECT_EQ(work.status().code(), Code::timeout) << work.status().to_string();
    EXPECT_EQ(work.status().culprit(), 1) << work.status().to_string();
    EXPECT_NE(work.status().text().find("has not made the call"), std::string::npos) << work.status().text();
  });
}

// The communicator's own limit takes the place of the setting.
TEST(Late, OptionsSayHowLongARankMayStayAway) {
  const std::string address = fresh_address();
  std::vector<Communicator> ranks(2);
  std::vector<std::thread> threads;
  for (int rank : {0, 1})
    threads.emplace_back([&, rank] {
      auto made = Communicator::create(rank, 2, address, {.timeout = seconds(1), .job_key = "k"});
      ASSERT_TRUE(made.ok()) << made.status().to_string();
      ranks[std::size_t(rank)] = std::move(*made);
      EXPECT_EQ(ranks[std::size_t(rank)].barrier().wait(), Status());
    });
  for (std::thread& thread : threads) thread.join();
  float x = 1;
  Work work = ranks[0].all_reduce({&x, &x, 1});
  ASSERT_TRUE(work.wait_for(seconds(20)));
  EXPECT_EQ(work.status().code(), Code::timeout) << work.status().to_string();
  EXPECT_EQ(work.status().culprit(), 1) << work.status().to_string();
  EXPECT_NE(work.status().text().find("has not made the call"), std::string::npos) << work.status().text();
}

// Those that did call wait for each other, too: every one of them answers, the asking one included.
TEST(Late, AnAbsentRankIsNamedByItsOwnClockAmongRanksThatWaitForEachOther) {
  World world(4, {{"TUTTI_TIMEOUT", "1s"}, {"TUTTI_ABSENT_TIMEOUT", "2s"}});
  world.run([](Communicator& comm) {
    ASSERT_TRUE(comm.barrier().wait().ok());
    if (comm.rank() == 2) return;
    std::vector<float> x(1 << 18, 1);
    const Status status = comm.all_reduce({x.data(), x.data(), x.size()}).wait();
    EXPECT_EQ(status.code(), Code::timeout) << status.to_string();
    EXPECT_EQ(status.culprit(), 2) << status.to_string();
    EXPECT_NE(status.text().find("has not made the call"), std::string::npos) << status.text();
  });
}

// Each waits for its neighbour.
TEST(Late, ACircleOfWaitsEndsByTheTimeoutAndSaysSo) {
  World world(3, {{"TUTTI_TIMEOUT", "1s"}});
  world.run([](Communicator& comm) {
    ASSERT_TRUE(comm.barrier().wait().ok());
    float x = 1;
    const Status status = comm.recv({.output = &x, .count = 1, .peer = (comm.rank() + 1) % 3}).wait();   // nobody sends
    EXPECT_EQ(status.code(), Code::timeout) << status.to_string();
    EXPECT_NE(status.text().find("same calls in the same order"), std::string::npos) << status.text();
  });
}

TEST(Processes, ForkedRanksAgree) {
  const std::string address = fresh_address();
  const auto body = [&](int rank) {
    Communicator comm = joined(rank, 4, address);
    for (int kind = 0; kind < kKindCount; ++kind)
      for (std::size_t count : {1, 999, 200003}) {
        Case test;
        test.kind = Kind(kind);
        test.count = count;
        test.in_place = kind % 2 == 0;
        test.root = kind % 4;
        if (!tried(comm, test).empty()) return 1;
      }
    return 0;
  };
  Child one([&] { return body(1); }), two([&] { return body(2); }), three([&] { return body(3); });
  EXPECT_EQ(body(0), 0);
  for (Child* child : {&one, &two, &three}) EXPECT_EQ(child->exit_code(), 0);
}

std::size_t maps_of_ours() {
  std::ifstream maps("/proc/self/maps");
  std::size_t count = 0;
  for (std::string line; std::getline(maps, line);) count += line.find("memfd:") != std::string::npos;
  return count;
}

class Leaks : public testing::TestWithParam<const char*> {};

TEST_P(Leaks, AHundredWorldsLeaveNothingBehind) {
  std::size_t descriptors = 0, threads = 0, maps = 0;
  for (int i = 0; i < 104; ++i) {
    {
      World world(2, {{"TUTTI_TRANSPORT", GetParam()}});
      world.run([](Communicator& comm) {
        Case test;
        test.count = 2000;
        EXPECT_EQ(tried(comm, test), "");
        auto part = comm.split(0, 0);
        ASSERT_TRUE(part.ok());
        EXPECT_EQ(tried(*part, test), "");
      });
    }
    if (i == 3) descriptors = entries("/proc/self/fd"), threads = entries("/proc/self/task"), maps = maps_of_ours();
  }
  EXPECT_EQ(entries("/proc/self/fd"), descriptors);
  EXPECT_EQ(entries("/proc/self/task"), threads);
  EXPECT_EQ(maps_of_ours(), maps);
}

INSTANTIATE_TEST_SUITE_P(Wires, Leaks, testing::Values("shm", "tcp"));

}  // namespace
}  // namespace tutti::test
