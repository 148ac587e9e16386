// What calls do that go well: groups, several communicators at once, split and shrink, memory, custom reductions,
// simulation.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <random>

#include "nccl/nccl_device.h"
#include "tests/nccl/ranks.h"
#include "tests/process/own_process.h"

namespace tutti::test {
namespace {

using ::testing::HasSubstr;

std::vector<double> random_numbers(std::size_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<double> between(1, 2);
  std::vector<double> out(count);
  for (double& x : out) x = between(random);
  return out;
}

TEST(NcclCalls, AGroupStartsAllItsOperationsBeforeItWaits) {
  Ranks ranks(3);
  ranks.run([](int rank, ncclComm_t comm) {
    // Each rank sends to all before it receives, and to itself; no single one of these calls could return alone.
    std::vector<std::vector<double>> out(3), in(3, std::vector<double>(1000));
    double sum = rank + 1;
    ASSERT_EQ(ncclGroupStart(), ncclSuccess);
    for (int peer = 0; peer < 3; ++peer) {
      out[std::size_t(peer)] = random_numbers(1000, unsigned(rank * 10 + peer));
      EXPECT_NCCL(ncclSuccess, ncclSend(out[std::size_t(peer)].data(), 1000, ncclDouble, peer, comm, nullptr));
    }
    ASSERT_EQ(ncclGroupStart(), ncclSuccess);
    EXPECT_NCCL(ncclSuccess, ncclAllReduce(&sum, &sum, 1, ncclDouble, ncclSum, comm, nullptr));
    EXPECT_NCCL(ncclSuccess, ncclGroupEnd());
    for (int peer = 0; peer < 3; ++peer)
      EXPECT_NCCL(ncclSuccess, ncclRecv(in[std::size_t(peer)].data(), 1000, ncclDouble, peer, comm, nullptr));
    EXPECT_EQ(sum, rank + 1) << "nothing is done before the outermost end";
    EXPECT_NCCL(ncclSuccess, ncclGroupEnd());
    EXPECT_EQ(sum, 6);
    for (int peer = 0; peer < 3; ++peer)
      EXPECT_EQ(in[std::size_t(peer)], random_numbers(1000, unsigned(peer * 10 + rank)));
  });
}

TEST(NcclCalls, SplitMakesGroupsByColourInTheOrderOfTheKeys) {
  Ranks ranks(4);
  ranks.run([](int rank, ncclComm_t comm) {
    ncclComm_t part = nullptr;
    EXPECT_NCCL(ncclSuccess, ncclCommSplit(comm, rank == 3 ? NCCL_SPLIT_NOCOLOR : rank % 2, -rank, &part, nullptr));
    EXPECT_EQ(part == nullptr, rank == 3);
    if (rank == 3) return;
    int own = -1, count = -1;
    EXPECT_NCCL(ncclSuccess, ncclCommUserRank(part, &own));
    EXPECT_NCCL(ncclSuccess, ncclCommCount(part, &count));
    EXPECT_EQ(count, rank == 1 ? 1 : 2);
    EXPECT_EQ(own, rank == 0 ? 1 : 0);
    EXPECT_NCCL(ncclSuccess, sum_of_ones(part, count));
    EXPECT_NCCL(ncclSuccess, ncclCommDestroy(part));
  });
}

// One thread makes, splits and uses several ranks: everything in groups.
TEST(NcclCalls, OneThreadSplitsTheRanksThatItHas) {
  ncclComm_t all[4], parts[4];
  const int devices[] = {3, 1, 0, 0};  // two of them share one
  ASSERT_EQ(ncclCommInitAll(all, 4, devices), ncclSuccess) << ncclGetLastError(nullptr);
  int device = -1;
  EXPECT_NCCL(ncclSuccess, ncclCommCuDevice(all[0], &device));
  EXPECT_EQ(device, 3);
  EXPECT_NCCL(ncclSuccess, ncclGroupStart());
  for (int r = 0; r < 4; ++r) EXPECT_NCCL(ncclSuccess, ncclCommSplit(all[r], r / 2, r, &parts[r], nullptr));
  EXPECT_NCCL(ncclSuccess, ncclGroupEnd());
  std::vector<std::vector<double>> in, out(4, std::vector<double>(777)), wide(4, std::vector<double>(777));
  EXPECT_NCCL(ncclSuccess, ncclGroupStart());
  for (int r = 0; r < 4; ++r) {
    in.push_back(random_numbers(777, unsigned(r)));
    EXPECT_NCCL(ncclSuccess, ncclAllReduce(in.back().data(), out[std::size_t(r)].data(), 777, ncclDouble, ncclMax,
                                           parts[r], nullptr));
    EXPECT_NCCL(ncclSuccess, ncclAllReduce(in.back().data(), wide[std::size_t(r)].data(), 777, ncclDouble, ncclMax,
                                           all[r], nullptr));
  }
  EXPECT_NCCL(ncclSuccess, ncclGroupEnd());
  for (std::size_t r = 0; r < 4; ++r)
    for (std::size_t i = 0; i < 777; ++i) {
      EXPECT_EQ(out[r][i], std::max(in[r / 2 * 2][i], in[r / 2 * 2 + 1][i]));
      EXPECT_EQ(wide[r][i], std::max(std::max(in[0][i], in[1][i]), std::max(in[2][i], in[3][i])));
    }
  for (int r = 0; r < 4; ++r) {
    EXPECT_NCCL(ncclSuccess, ncclCommDestroy(parts[r]));
    EXPECT_NCCL(ncclSuccess, ncclCommDestroy(all[r]));
  }
}

TEST(NcclCalls, ScalableTakesAnyNumberOfIds) {
  ncclUniqueId ids[2] = {Ranks::make_id(), Ranks::make_id()};
  in_threads(3, [&](int rank) {
    ncclComm_t comm = nullptr;
    EXPECT_NCCL(ncclSuccess, ncclCommInitRankScalable(&comm, 3, rank, 2, ids, nullptr));
    EXPECT_NCCL(ncclSuccess, sum_of_ones(comm, 3));
    EXPECT_NCCL(ncclSuccess, ncclCommDestroy(comm));
  });
  ncclComm_t comm = nullptr;
  EXPECT_EQ(ncclCommInitRankScalable(&comm, 3, 0, 4, ids, nullptr), ncclInvalidArgument);
  EXPECT_THAT(ncclGetLastError(nullptr), HasSubstr("nId is 4, wanted 1 to 3"));
}

TEST(NcclCalls, ShrinkLeavesOutRanksThatLiveAndDoNotCall) {
  Ranks ranks(5);
  ranks.run([](int rank, ncclComm_t comm) {
    EXPECT_NCCL(ncclSuccess, sum_of_ones(comm, 5));
    if (rank % 2 == 1) return;
    int excluded[] = {1, 3};
    ncclComm_t left = nullptr;
    EXPECT_NCCL(ncclSuccess, ncclCommShrink(comm, excluded, 2, &left, nullptr, NCCL_SHRINK_DEFAULT));
    int own = -1;
    EXPECT_NCCL(ncclSuccess, ncclCommUserRank(left, &own));
    EXPECT_EQ(own, rank / 2);
    EXPECT_NCCL(ncclSuccess, sum_of_ones(left, 3, 5000));
    EXPECT_NCCL(ncclSuccess, ncclCommDestroy(left));
  });
  ranks.run(
      [](int, ncclComm_t comm) { EXPECT_NCCL(ncclSuccess, sum_of_ones(comm, 5)) << "the parent stays as it was"; });
}

TEST(NcclCalls, ShrinkToFewerThanHalfOfTheRanks) {
  Ranks ranks(4);
  int excluded[] = {0, 1, 2};
  ncclComm_t left = nullptr;
  EXPECT_NCCL(ncclSuccess, ncclCommShrink(ranks[3], excluded, 3, &left, nullptr, NCCL_SHRINK_DEFAULT));
  EXPECT_NCCL(ncclSuccess, sum_of_ones(left, 1));
  EXPECT_NCCL(ncclSuccess, ncclCommDestroy(left));
}

// The scalar of each rank is its own; a device scalar is read at each operation.
TEST(NcclCalls, PreMulSumReadsItsScalarWhenItShould) {
  Ranks ranks(2);
  ranks.run([](int rank, ncclComm_t comm) {
    float scalar = float(rank + 2);
    ncclRedOp_t now, later;
    EXPECT_NCCL(ncclSuccess, ncclRedOpCreatePreMulSum(&now, &scalar, ncclFloat, ncclScalarHostImmediate, comm));
    EXPECT_NCCL(ncclSuccess, ncclRedOpCreatePreMulSum(&later, &scalar, ncclFloat, ncclScalarDevice, comm));
    scalar = float(rank + 5);
    float x = 10, y = 0;
    EXPECT_NCCL(ncclSuccess, ncclAllReduce(&x, &y, 1, ncclFloat, now, comm, nullptr));
    EXPECT_EQ(y, 10 * 2 + 10 * 3);
    EXPECT_NCCL(ncclSuccess, ncclAllReduce(&x, &y, 1, ncclFloat, later, comm, nullptr));
    EXPECT_EQ(y, 10 * 5 + 10 * 6);
    EXPECT_EQ(ncclAllReduce(&x, &y, 1, ncclInt32, now, comm, nullptr), ncclInvalidArgument);
    EXPECT_NCCL(ncclSuccess, ncclRedOpDestroy(now, comm));
    EXPECT_EQ(ncclAllReduce(&x, &y, 1, ncclFloat, now, comm, nullptr), ncclInvalidArgument);
    EXPECT_EQ(ncclRedOpDestroy(now, comm), ncclInvalidArgument);
    EXPECT_NCCL(ncclSuccess, ncclRedOpDestroy(later, comm));
  });
  const std::int64_t exact = (std::int64_t(1) << 60) + 1;
  ncclRedOp_t op;
  EXPECT_EQ(
      ncclRedOpCreatePreMulSum(&op, const_cast<std::int64_t*>(&exact), ncclInt64, ncclScalarHostImmediate, ranks[0]),
      ncclInvalidArgument);
  EXPECT_THAT(ncclGetLastError(nullptr), HasSubstr("1152921504606846977"));
}

TEST(NcclCalls, MemoryIsGivenRegisteredAndTakenBack) {
  Ranks ranks(2);
  ranks.run([](int rank, ncclComm_t comm) {
    void *memory = nullptr, *handle = nullptr;
    EXPECT_NCCL(ncclSuccess, ncclMemAlloc(&memory, 1 << 20));
    EXPECT_NCCL(ncclSuccess, ncclCommRegister(comm, memory, 1 << 20, &handle));
    auto* const floats = static_cast<float*>(memory);
    std::fill(floats, floats + (1 << 18), float(rank + 1));
    EXPECT_NCCL(ncclSuccess, ncclAllReduce(memory, memory, 1 << 18, ncclFloat, ncclSum, comm, nullptr));
    EXPECT_EQ(std::count(floats, floats + (1 << 18), 3.0f), 1 << 18);
    EXPECT_NCCL(ncclSuccess, ncclCommDeregister(comm, handle));
    EXPECT_EQ(ncclCommDeregister(comm, handle), ncclInvalidArgument);
    EXPECT_NCCL(ncclSuccess, ncclMemFree(memory));
  });
  int local = 0;
  void* none = &local;
  EXPECT_EQ(ncclMemFree(&local), ncclInvalidArgument);
  EXPECT_NCCL(ncclSuccess, ncclMemFree(nullptr));
  EXPECT_NCCL(ncclSuccess, ncclMemAlloc(&none, 0));
  EXPECT_EQ(none, nullptr);
}

// One rank waits in the first communicator while both go through the second.
TEST(NcclCalls, CommunicatorsDoNotWaitForEachOther) {
  Ranks ranks(2);
  ncclComm_t second[2];
  ranks.run([&](int rank, ncclComm_t comm) {
    EXPECT_NCCL(ncclSuccess, ncclCommSplit(comm, 0, rank, &second[rank], nullptr));
  });
  std::thread waits([&] { EXPECT_NCCL(ncclSuccess, sum_of_ones(ranks[0], 2, 100000)); });
  ranks.run([&](int rank, ncclComm_t) { EXPECT_NCCL(ncclSuccess, sum_of_ones(second[rank], 2, 100000)); });
  EXPECT_NCCL(ncclSuccess, sum_of_ones(ranks[1], 2, 100000));
  waits.join();
  for (ncclComm_t comm : second) EXPECT_NCCL(ncclSuccess, ncclCommDestroy(comm));
}

// Threads and descriptors, also of ids: they end when all have met, which of one rank is at once.
TEST(NcclCalls, NothingIsLeftOfCommunicatorsThatCameAndWent) {
  const auto come_and_go = [](int count) {
    Ranks ranks(count);
    ranks.run([&](int, ncclComm_t comm) { EXPECT_NCCL(ncclSuccess, sum_of_ones(comm, count)); });
  };
  const auto settled = [](std::size_t descriptors_at_most, std::size_t threads_at_most) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (descriptors() > descriptors_at_most || entries("/proc/self/task") > threads_at_most)
      if (std::chrono::steady_clock::now() > end) return false;
    return true;
  };
  const std::size_t descriptors_before = descriptors(), threads_before = entries("/proc/self/task");
  come_and_go(2);
  ASSERT_TRUE(settled(descriptors_before + 2, threads_before)) << "what stays is the process's, not a communicator's";
  const std::size_t kept = descriptors();
  for (int i = 0; i < 10; ++i) come_and_go(1 + i % 3);
  EXPECT_TRUE(settled(kept, threads_before)) << descriptors() << " descriptors of " << kept << ", "
                                             << entries("/proc/self/task") << " entries of " << threads_before;
}

TEST(NcclCalls, ASimulatedGroupTellsATimeAndMovesNothing) {
  Ranks ranks(2);
  float small = 1, big[4096] = {};
  const auto simulated = [&](std::size_t count) {
    ncclSimInfo_t info = NCCL_SIM_INFO_INITIALIZER;
    EXPECT_NCCL(ncclSuccess, ncclGroupStart());
    EXPECT_NCCL(ncclSuccess, ncclAllReduce(big, big, count, ncclFloat, ncclSum, ranks[0], nullptr));
    EXPECT_NCCL(ncclSuccess, ncclGroupSimulateEnd(&info));
    return info.estimatedTime;
  };
  EXPECT_GT(simulated(1), 0);
  EXPECT_GT(simulated(4096), simulated(1));
  ranks.run([&](int, ncclComm_t comm) { EXPECT_NCCL(ncclSuccess, sum_of_ones(comm, 2)); });
  ncclSimInfo_t bare{};
  EXPECT_NCCL(ncclSuccess, ncclGroupStart());
  EXPECT_EQ(ncclGroupSimulateEnd(&bare), ncclInvalidArgument);
  EXPECT_NCCL(ncclSuccess, ncclAllReduce(&small, &small, 0, ncclFloat, ncclSum, ranks[0], nullptr))
      << "the group was ended nevertheless";
}

TEST(NcclCalls, WhatIsNotServedSaysSo) {
  Ranks ranks(1);
  float buffer[16];
  ncclWindow_t window = reinterpret_cast<ncclWindow_t>(buffer);
  EXPECT_EQ(ncclCommWindowRegister(ranks[0], buffer, sizeof buffer, &window, NCCL_WIN_COLL_SYMMETRIC),
            ncclInvalidUsage);
  EXPECT_EQ(window, nullptr);
  EXPECT_THAT(ncclGetLastError(nullptr), HasSubstr("windows of symmetric memory are not served"));
  EXPECT_EQ(ncclDevCommCreate(ranks[0], nullptr, nullptr), ncclInvalidUsage);
  EXPECT_THAT(ncclGetLastError(nullptr), HasSubstr("ncclDevCommCreate: the device API"));
  const ncclTeam_t world = ncclTeamWorld(ranks[0]), near = ncclTeamLsa(ranks[0]);
  EXPECT_EQ(world.nRanks, 1);
  EXPECT_EQ(near.nRanks, 1);
  EXPECT_EQ(ncclTeamRankToWorld(ranks[0], near, 0), 0);
}

// A profiler puts a function of its own in front and goes on by the twin.
TEST(NcclCalls, TwinsAreTheSame) {
  Ranks ranks(1);
  float x = 4, y = 0;
  EXPECT_NCCL(ncclSuccess, pncclAllReduce(&x, &y, 1, ncclFloat, ncclSum, ranks[0], nullptr));
  EXPECT_EQ(y, 4);
}

}  // namespace
}  // namespace tutti::test
