// After a failure: survivors shrink and go on; new ranks join between operations.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <numeric>
#include <thread>

#include "tests/process/world.h"

namespace tutti::test {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// The sum of rank + 1 over all ranks, or -1.
double sum_of_ranks(Communicator& comm) {
  std::vector<double> in(1000, comm.rank() + 1.0), out(1000);
  const Status status = comm.all_reduce({in.data(), out.data(), in.size(), DataType::f64}).wait();
  if (!status.ok()) return ADD_FAILURE() << status.to_string(), -1;
  return out[999];
}

// A process that is rank `rank` and works until it is killed.
pid_t worker(int rank, int count, const std::string& address, const Settings& settings) {
  const pid_t pid = fork();
  if (pid != 0) return pid;
  Environment environment(settings);
  Communicator comm = joined(rank, count, address);
  double x = 1, y = 0;
  while (comm.all_reduce({&x, &y, 1, DataType::f64}).wait().ok()) {}
  _exit(0);
}

class CarryOn : public testing::TestWithParam<const char*> {};

TEST_P(CarryOn, AfterAKilledProcess) {
  const Settings settings = {{"TUTTI_TRANSPORT", GetParam()}, {"TUTTI_TIMEOUT", "20s"}};
  const std::string address = fresh_address();
  const pid_t victim = worker(0, 4, address, settings);
  World world(4, 1, address, settings);
  world.run([&](Communicator& comm) {
    double x = 1, y = 0;
    Status status;
    for (int i = 0; status.ok(); ++i) {
      if (i == 50 && comm.rank() == 1) kill(victim, SIGKILL);  // the others may still be in operation 49
      status = comm.all_reduce({&x, &y, 1, DataType::f64}).wait();
    }
    EXPECT_EQ(status.code(), Code::peer_lost) << status.to_string();
    EXPECT_EQ(status.culprit(), 0) << status.to_string();
    const auto start = std::chrono::steady_clock::now();
    auto next = comm.shrink();
    ASSERT_TRUE(next.ok()) << next.status().to_string();
    EXPECT_LT(std::chrono::steady_clock::now() - start, seconds(5)) << "nobody has to be waited for";
    EXPECT_EQ(next->rank_count(), 3);
    EXPECT_EQ(next->rank(), comm.rank() - 1);
    for (int i = 0; i < 20; ++i) EXPECT_EQ(sum_of_ranks(*next), 6);
    EXPECT_EQ(comm.barrier().wait(), status) << "the old one stays as it is";
    EXPECT_EQ(comm.status(), status);
    EXPECT_EQ(next->status(), Status());
    EXPECT_EQ(comm.shrink().status().code(), Code::invalid_state);
  });
  waitpid(victim, nullptr, 0);
}

TEST_P(CarryOn, AfterAStoppedProcess) {
  const Settings settings = {{"TUTTI_TRANSPORT", GetParam()}, {"TUTTI_TIMEOUT", "1s"}};
  const std::string address = fresh_address();
  const pid_t victim = worker(0, 3, address, settings);
  World world(3, 1, address, settings);
  world.run([&](Communicator& comm) {
    if (comm.rank() == 1) kill(victim, SIGSTOP);
    double x = 1, y = 0;
    Status status;
    while (status.ok()) status = comm.all_reduce({&x, &y, 1, DataType::f64}).wait();
    EXPECT_EQ(status.culprit(), 0) << status.to_string();
    auto next = comm.shrink();
    ASSERT_TRUE(next.ok()) << next.status().to_string();
    EXPECT_EQ(next->rank_count(), 2);
    EXPECT_EQ(sum_of_ranks(*next), 3);
  });
  kill(victim, SIGKILL);
  waitpid(victim, nullptr, 0);
}

INSTANTIATE_TEST_SUITE_P(Wires, CarryOn, testing::Values("shm", "tcp"),
                         [](const auto& of) { return std::string(of.param); });

TEST(Shrink, WithoutAFailureAllGoOnAndBothWork) {
  World world(3);
  world.run([](Communicator& comm) {
    auto next = comm.shrink();
    ASSERT_TRUE(next.ok()) << next.status().to_string();
    EXPECT_EQ(next->rank_count(), 3);
    EXPECT_EQ(sum_of_ranks(*next), 6);
    EXPECT_EQ(sum_of_ranks(comm), 6);
    auto again = next->shrink();
    ASSERT_TRUE(again.ok());
    EXPECT_EQ(sum_of_ranks(*again), 6);
  });
}

TEST(Shrink, WhoDoesNotCallIsLeftOut) {
  World world(3);
  world.run([](Communicator& comm) {
    if (comm.rank() == 2) {
      std::this_thread::sleep_for(milliseconds(2500));
      auto late = comm.shrink(milliseconds(500));
      EXPECT_EQ(late.status().code(), Code::peer_lost);
      EXPECT_EQ(late.status().culprit(), 2) << late.status().to_string();
      return;
    }
    auto next = comm.shrink(milliseconds(500));
    ASSERT_TRUE(next.ok()) << next.status().to_string();
    EXPECT_EQ(next->rank_count(), 2);
    EXPECT_EQ(sum_of_ranks(*next), 3);
    std::this_thread::sleep_for(seconds(3));
  });
}

// They neither call nor count for the halves.
TEST(Shrink, RanksThatAreToGoAreNotWaitedFor) {
  World world(5);
  world.run([](Communicator& comm) {
    EXPECT_EQ(sum_of_ranks(comm), 15);
    if (comm.rank() < 3) return;
    const auto start = std::chrono::steady_clock::now();
    auto next = comm.shrink(seconds(60), {0, 1, 2});
    ASSERT_TRUE(next.ok()) << next.status().to_string();
    EXPECT_LT(std::chrono::steady_clock::now() - start, seconds(30));
    EXPECT_EQ(next->rank_count(), 2);
    EXPECT_EQ(sum_of_ranks(*next), 3);
  });
  for (int wrong : {-1, 4, 5}) EXPECT_EQ(world[4].shrink(seconds(1), {wrong}).status().code(), Code::invalid_argument);
  world.run([](Communicator& comm) { EXPECT_EQ(sum_of_ranks(comm), 15) << "the old one stays as it is"; });
}

TEST(Shrink, OfOneRankAndOfNone) {
  World world(1);
  world.run([](Communicator& comm) {
    auto next = comm.shrink();
    ASSERT_TRUE(next.ok());
    EXPECT_EQ(next->rank_count(), 1);
  });
  Communicator none;
  EXPECT_EQ(none.shrink().status().code(), Code::invalid_state);
  EXPECT_EQ(none.grow(2, UniqueId{}).status().code(), Code::invalid_state);
}

TEST(Grow, NewRanksComeBehindTheOldOnes) {
  auto id = Communicator::make_unique_id();
  ASSERT_TRUE(id.ok());
  std::vector<std::thread> newcomers;
  for (int rank = 2; rank < 4; ++rank)
    newcomers.emplace_back([&, rank] {
      auto comm = Communicator::create(rank, 4, *id);
      ASSERT_TRUE(comm.ok()) << comm.status().to_string();
      EXPECT_EQ(sum_of_ranks(*comm), 10);
    });
  World world(2);
  world.run([&](Communicator& comm) {
    EXPECT_EQ(comm.grow(2, *id).status().code(), Code::invalid_argument);
    auto larger = comm.grow(4, comm.rank() == 0 ? *id : UniqueId{});
    ASSERT_TRUE(larger.ok()) << larger.status().to_string();
    EXPECT_EQ(larger->rank(), comm.rank());
    EXPECT_EQ(sum_of_ranks(*larger), 10);
    EXPECT_EQ(sum_of_ranks(comm), 3);
  });
  for (auto& t : newcomers) t.join();
}

}  // namespace
}  // namespace tutti::test
