// Buffers by tutti::allocate: read in place by the ranks of this host, right
// all the same, and gone when they are dropped.
#include <gtest/gtest.h>
#include <sched.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <fstream>
#include <random>
#include <thread>

#include "tests/process/calls.h"
#include "tests/process/world.h"

namespace tutti::test {
namespace {

std::size_t resident_shared_kilobytes() {
  std::ifstream file("/proc/self/status");
  for (std::string line; std::getline(file, line);)
    if (line.starts_with("RssShmem:")) return std::strtoull(line.c_str() + 9, nullptr, 10);
  return 0;
}

TEST(Allocated, IsZeroedAlignedAndRefusesNothing) {
  EXPECT_EQ(allocate(0).status().code(), Code::invalid_argument);
  const auto memory = allocate(10'000);
  ASSERT_TRUE(memory.ok()) << memory.status().to_string();
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(*memory) % 4096, 0u);
  for (int i = 0; i < 10'000; ++i) ASSERT_EQ(static_cast<char*>(*memory)[i], 0);
  deallocate(*memory);
  deallocate(nullptr);
  const auto huge = allocate(std::size_t(1) << 60);
  EXPECT_EQ(huge.status().code(), Code::out_of_resources);
}

class Everywhere : public testing::TestWithParam<const char*> {};

// Some ranks have such memory and some have not, and other calls come between.
TEST_P(Everywhere, EveryCallIsRight) {
  for (const int n : {2, 3, 5}) {
    World world(n, {{"TUTTI_TRANSPORT", GetParam()}});
    world.run([&](Communicator& comm) {
      std::mt19937 shared(17), own(unsigned(comm.rank()));
      for (int round = 0; round < 60; ++round) {
        Case test;
        test.kind = Kind(shared() % kKindCount);
        const std::size_t counts[] = {1, 1023, 1024, 5000, 40'000, 300'000};
        test.count = counts[shared() % (n > 3 ? 5 : 6)];
        test.root = int(shared() % unsigned(n));
        test.in_place = shared() % 2;
        test.gaps = shared() % 3 == 0;
        test.filling.type = shared() % 2 ? DataType::f32 : DataType::bf16;
        test.allocated = own() % 3 != 0;
        test.shift = own() % 2 ? 0 : 4;
        ASSERT_EQ(tried(comm, test), "");
      }
    });
  }
}
INSTANTIATE_TEST_SUITE_P(Wires, Everywhere, testing::Values("shm", "tcp"),
                         [](const auto& p) { return std::string(p.param); });

TEST(Allocated, EveryAlgorithmReadsItInPlace) {
  for (const char* algorithm :
       {"direct", "two_shot", "ring", "bidirectional_ring", "tree", "recursive_doubling", "circulant"}) {
    World world(4, {{"TUTTI_TRANSPORT", "shm"}, {"TUTTI_ALGO", std::string("all_reduce:") + algorithm}});
    world.run([&](Communicator& comm) {
      for (const bool in_place : {false, true}) {
        Case test;
        test.count = 200'003;
        test.in_place = in_place;
        test.allocated = true;
        ASSERT_EQ(tried(comm, test), "") << algorithm;
      }
    });
  }
}

// Several at once: more parts than tickets.
TEST(Allocated, ManyOperationsAtOnce) {
  World world(3, {{"TUTTI_TRANSPORT", "shm"}});
  world.run([](Communicator& comm) {
    constexpr int kAtOnce = 12;
    constexpr std::size_t kCount = 500'000;
    std::vector<float*> memory;
    for (int i = 0; i < kAtOnce; ++i) {
      memory.push_back(static_cast<float*>(allocate(kCount * sizeof(float)).value()));
      for (std::size_t k = 0; k < kCount; ++k) memory[std::size_t(i)][k] = float(int(k % 1000) + comm.rank() + i);
    }
    std::vector<Work> works;
    for (float* at : memory) works.push_back(comm.all_reduce({at, at, kCount}));
    for (Work& work : works) ASSERT_EQ(work.wait().to_string(), Status().to_string());
    for (int i = 0; i < kAtOnce; ++i)
      for (std::size_t k = 0; k < kCount; ++k)
        ASSERT_EQ(memory[std::size_t(i)][k], float(3 * int(k % 1000) + 3 + 3 * i)) << i << " " << k;
    for (float* at : memory) deallocate(at);
  });
}

// A receiver holds what it has of one sender until it has the same of the others: no lane may have all tickets, and who
// has none still sends what the others wait for.
TEST(Allocated, LanesThatGetAheadStarveNoOther) {
  World world(4, {{"TUTTI_TRANSPORT", "shm"}, {"TUTTI_ALGO", "all_reduce:two_shot"}, {"TUTTI_TIMEOUT", "20s"}});
  world.run([](Communicator& comm) {
    constexpr std::size_t kCount = 4 << 20;
    auto* const memory = static_cast<float*>(allocate(kCount * sizeof(float)).value());
    std::mt19937 own(unsigned(comm.rank()));
    for (int i = 0; i < 40; ++i) {
      std::fill(memory, memory + kCount, float(comm.rank()));
      for (unsigned wait = own() % 64; wait > 0; --wait) sched_yield();
      ASSERT_EQ(comm.all_reduce({memory, memory, kCount}).wait().to_string(), Status().to_string()) << i;
      ASSERT_EQ(memory[kCount - 1], 6) << i;
    }
    deallocate(memory);
  });
}

TEST(Allocated, WhatIsDroppedTakesNoMemory) {
  World world(2, {{"TUTTI_TRANSPORT", "shm"}});
  const auto once = [](Communicator& comm) {
    constexpr std::size_t kBytes = 16 << 20;
    void* const memory = allocate(kBytes).value();
    std::memset(memory, 1, kBytes);
    ASSERT_TRUE(comm.all_reduce({memory, memory, kBytes, DataType::u8}).wait().ok());
    EXPECT_EQ(static_cast<unsigned char*>(memory)[kBytes - 1], 2);
    deallocate(memory);
  };
  world.run([&](Communicator& comm) {
    for (int i = 0; i < 3; ++i) once(comm);
  });
  const std::size_t before = resident_shared_kilobytes();
  world.run([&](Communicator& comm) {
    for (int i = 0; i < 20; ++i) once(comm);
  });
  EXPECT_LT(resident_shared_kilobytes(), before + (20 << 10));
}

// Two PID namespaces: neither finds the other's memory by its number, so both get copies.
TEST(Allocated, RanksOfAnotherPidNamespaceGetCopies) {
  if (geteuid() != 0) GTEST_SKIP() << "a PID namespace needs root";
  const std::string address = fresh_address();
  const auto work = [&](int rank) {
    const Environment environment(Settings{{"TUTTI_TRANSPORT", "shm"}});
    Communicator comm = joined(rank, 2, address);
    Case test;
    test.count = 100'000;
    test.allocated = true;
    return tried(comm, test).empty() ? 0 : 1;
  };
  Child apart([&] { return in_own_pid_namespace([&] { return work(1); }); });
  Child here([&] { return work(0); });
  const int code = apart.exit_code();
  if (code == kNoNamespace) GTEST_SKIP() << "unshare(CLONE_NEWPID) is not permitted here";
  EXPECT_EQ(code, 0);
  EXPECT_EQ(here.exit_code(), 0);
}

// In other processes, one of which dies while the others read its memory and it reads theirs.
TEST(Allocated, ADeathIsTheSameVerdict) {
  const std::string address = fresh_address();
  const auto work = [&](int rank) {
    const Environment environment(Settings{{"TUTTI_TRANSPORT", "shm"}});
    Communicator comm = joined(rank, 3, address);
    constexpr std::size_t kCount = 1'000'000;
    float* const memory = static_cast<float*>(allocate(kCount * sizeof(float)).value());
    for (int i = 0; i < 100'000; ++i) {
      const Status status = comm.all_reduce({memory, memory, kCount}).wait();
      if (!status.ok()) return status.code() == Code::peer_lost && status.culprit() == 2 ? 7 : 8;
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
