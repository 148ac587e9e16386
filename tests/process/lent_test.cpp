// Large messages between ranks of a host, left where they are for the receiver to fetch (SegmentHeader::lend): right all the same, in
// any order, and when somebody fails or may not read.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <memory>
#include <random>
#include <thread>

#include "tests/process/calls.h"
#include "tests/process/world.h"

namespace tutti::test {
namespace {

const Settings kLent{{"TUTTI_TRANSPORT", "shm"}, {"TUTTI_CMA_THRESHOLD", "0"}, {"TUTTI_TIMEOUT", "20s"}};

Settings with(Settings settings, const std::string& name, const std::string& value) {
  settings.emplace_back(name, value);
  return settings;
}

std::vector<float> numbers(std::size_t count, int rank, int turn) {
  std::vector<float> out(count);
  for (std::size_t i = 0; i < count; ++i) out[i] = float(mixed(i + std::size_t(turn) * 977 + std::size_t(rank) * 31) % 100'000);
  return out;
}

Case gather_of(std::size_t count) {
  Case test;
  test.kind = Kind::all_gather;
  test.count = count;
  return test;
}

class Lent : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, Lent, testing::Values(2, 3, 5), testing::PrintToStringParamName());

TEST_P(Lent, EveryCallIsRight) {
  World world(GetParam(), kLent);
  world.run([&](Communicator& comm) {
    std::mt19937 shared(18), own(unsigned(comm.rank()));
    for (int round = 0; round < 80; ++round) {
      Case test;
      test.kind = Kind(shared() % kKindCount);
      const std::size_t counts[] = {1, 4097, 5000, 20'000, 40'000, 66'000, 300'000};
      test.count = counts[shared() % (GetParam() > 3 ? 6 : 7)];
      test.root = int(shared() % unsigned(GetParam()));
      test.in_place = shared() % 2;
      test.gaps = shared() % 3 == 0;
      test.allocated = own() % 4 == 0;
      test.shift = own() % 2 ? 0 : 4;
      ASSERT_EQ(tried(comm, test), "");
    }
  });
}

TEST_P(Lent, ByEveryAlgorithm) {
  for (const char* algorithm : {"direct", "ring", "recursive_doubling", "circulant", "bruck", "pat"}) {
    if (std::string(algorithm) == "recursive_doubling" && GetParam() != 2) continue;      // powers of two alone
    World world(GetParam(), with(kLent, "TUTTI_ALGO", std::string("all_gather:") + algorithm));
    world.run([&](Communicator& comm) {
      for (const bool in_place : {false, true}) {
        Case test = gather_of(70'001);
        test.in_place = in_place;
        ASSERT_EQ(tried(comm, test), "") << algorithm;
      }
    });
  }
}

// Each rank is ahead with another communicator's operations than its neighbour: more messages than tickets, and none fetched until the
// receiver comes to it.
TEST_P(Lent, TwoCommunicatorsInOppositeOrder) {
  constexpr int kAtOnce = 90;
  constexpr std::size_t kCount = 20'000;
  World world(GetParam(), kLent);
  world.run([&](Communicator& comm) {
    auto a = comm.split(0, comm.rank()), b = comm.split(0, comm.rank());
    ASSERT_TRUE(a.ok() && b.ok());
    Communicator* order[] = {&*a, &*b};
    if (comm.rank() % 2) std::swap(order[0], order[1]);
    const std::size_t n = std::size_t(comm.rank_count());
    const std::vector<float> mine = numbers(kCount, comm.rank(), 0);
    std::vector<std::vector<float>> all(2 * kAtOnce, std::vector<float>(n * kCount));
    std::vector<Work> works;
    for (int i = 0; i < 2 * kAtOnce; ++i)
      works.push_back(order[i / kAtOnce]->all_gather({mine.data(), all[std::size_t(i)].data(), kCount}));
    for (Work& work : works) ASSERT_EQ(work.wait().to_string(), Status().to_string());
    for (const auto& vector : all)
      for (std::size_t r = 0; r < n; ++r) {
        const auto wanted = numbers(kCount, int(r), 0);
        ASSERT_TRUE(std::equal(wanted.begin(), wanted.end(), vector.begin() + std::ptrdiff_t(r * kCount)));
      }
  });
}

TEST(LentPairs, ASmallSendEndsWithoutItsReceiver) {
  World world(2, kLent);
  world.run([](Communicator& comm) {
    const auto mine = numbers(15'000, comm.rank(), 1);
    std::vector<float> theirs(mine.size());
    const int other = 1 - comm.rank();
    ASSERT_EQ(comm.send({mine.data(), mine.size(), DataType::f32, other}).wait(), Status());       // both of them, first
    ASSERT_EQ(comm.recv({theirs.data(), theirs.size(), DataType::f32, other}).wait(), Status());
    EXPECT_EQ(theirs, numbers(mine.size(), other, 1));
  });
}

TEST(LentPairs, LargeOnesCrossInAGroup) {
  World world(2, kLent);
  world.run([](Communicator& comm) {
    const auto mine = numbers(2'000'000, comm.rank(), 2);
    std::vector<float> theirs(mine.size());
    const int other = 1 - comm.rank();
    comm.begin_group();
    (void)comm.send({mine.data(), mine.size(), DataType::f32, other});
    (void)comm.recv({theirs.data(), theirs.size(), DataType::f32, other});
    ASSERT_EQ(comm.end_group().wait(), Status());
    EXPECT_EQ(theirs, numbers(mine.size(), other, 2));
  });
}

// Ranks in processes of their own; what each works under.
std::vector<int> codes_of(int ranks, const Settings& settings, const std::function<int(Communicator&)>& work, const std::function<void(int)>& before = {}) {
  const std::string address = fresh_address();
  std::vector<std::unique_ptr<Child>> children;
  for (int rank = 0; rank < ranks; ++rank)
    children.push_back(std::make_unique<Child>([&, rank] {
      if (before) before(rank);
      const Environment environment(settings);
      Communicator comm = joined(rank, ranks, address);
      return work(comm);
    }));
  std::vector<int> codes;
  for (auto& child : children) codes.push_back(child->exit_code());
  return codes;
}

int gather_all(Communicator& comm) {
  for (const std::size_t count : {5'000u, 70'000u, 1'000'000u})
    if (!tried(comm, gather_of(count)).empty()) return 1;
  return 0;
}

TEST(LentProcesses, ReadEachOthersMemory) {
  for (const char* cma : {"auto", "1", "0"}) EXPECT_EQ(codes_of(3, with(kLent, "TUTTI_CMA", cma), gather_all), std::vector<int>(3, 0)) << cma;
}

TEST(LentProcesses, OneThatMayNotBeReadSendsCopies) {
  const auto closed = [](int rank) {
    if (rank == 1 && geteuid() == 0) (void)(setgid(65534) + setuid(65534));      // root reads all; two others do not
    if (rank == 1) prctl(PR_SET_DUMPABLE, 0);
  };
  EXPECT_EQ(codes_of(2, kLent, gather_all, closed), std::vector<int>(2, 0));
}

// It says so in mid-life: what is under way goes on another way.
TEST(LentProcesses, OneThatMayNotBeReadAnyMoreSendsCopies) {
  const auto work = [](Communicator& comm) {
    for (int i = 0; i < 20; ++i) {
      if (i == 10 && comm.rank() == 1) prctl(PR_SET_DUMPABLE, 0);
      if (gather_all(comm) != 0) return 1;
    }
    return 0;
  };
  const auto nobody = [](int) {
    if (geteuid() == 0) (void)(setgid(65534) + setuid(65534));
    prctl(PR_SET_DUMPABLE, 1);
  };
  EXPECT_EQ(codes_of(2, kLent, work, nobody), std::vector<int>(2, 0));
}

TEST(LentProcesses, OfAnotherPidNamespaceGetCopies) {
  if (geteuid() != 0) GTEST_SKIP() << "a PID namespace needs root";
  const std::string address = fresh_address();
  const auto work = [&](int rank) {
    const Environment environment(kLent);
    Communicator comm = joined(rank, 2, address);
    return gather_all(comm);
  };
  Child apart([&] { return in_own_pid_namespace([&] { return work(1); }); });
  Child here([&] { return work(0); });
  const int code = apart.exit_code();
  if (code == kNoNamespace) GTEST_SKIP() << "unshare(CLONE_NEWPID) is not permitted here";
  EXPECT_EQ(code, 0);
  EXPECT_EQ(here.exit_code(), 0);
}

// Its end is all that the sender, asleep, is woken by; what it had fetched was sent.
TEST(LentProcesses, AReceiverThatLeavesAtOnceHasHadItAll) {
  const auto work = [](Communicator& comm) {
    const auto mine = numbers(500'000, 0, 5);
    std::vector<float> got(mine.size());
    if (comm.rank() == 0) return comm.send({mine.data(), mine.size(), DataType::f32, 1}).wait().ok() ? 0 : 1;
    std::this_thread::sleep_for(std::chrono::milliseconds(150));
    if (!comm.recv({got.data(), got.size(), DataType::f32, 0}).wait().ok()) return 2;
    return got == mine ? 0 : 3;
  };
  for (int i = 0; i < 5; ++i) EXPECT_EQ(codes_of(2, kLent, work), std::vector<int>(2, 0));
}

TEST(LentProcesses, ADeathIsTheSameVerdict) {
  const std::string address = fresh_address();
  const auto work = [&](int rank) {
    const Environment environment(kLent);
    Communicator comm = joined(rank, 3, address);
    const auto mine = numbers(500'000, rank, 4);
    std::vector<float> all(3 * mine.size());
    for (int i = 0; i < 100'000; ++i) {
      const Status status = comm.all_gather({mine.data(), all.data(), mine.size()}).wait();
      if (!status.ok()) return status.code() == Code::peer_lost && status.culprit() == 2 ? 7 : 8;
      for (int r = 0; r < 3; ++r)
        if (all[std::size_t(r) * mine.size() + 499'999] != numbers(500'000, r, 4).back()) return 6;
    }
    return 9;
  };
  Child victim([&] { return work(2); }), first([&] { return work(0); }), second([&] { return work(1); });
  std::this_thread::sleep_for(std::chrono::milliseconds(700));
  victim.signal(SIGKILL);
  EXPECT_EQ(first.exit_code(), 7);
  EXPECT_EQ(second.exit_code(), 7);
}

}  // namespace
}  // namespace tutti::test
