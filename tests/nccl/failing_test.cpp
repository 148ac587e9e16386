// What calls do that go wrong: what they return, what ncclGetLastError says, whom it names, and how the others go on.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>

#include "tests/nccl/ranks.h"

namespace tutti::test {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::HasSubstr;
using Clock = std::chrono::steady_clock;

std::string last(ncclComm_t comm = nullptr) { return ncclGetLastError(comm); }

TEST(NcclConfig, ItsHeadAndItsFieldsAreChecked) {
  const ncclUniqueId id = Ranks::make_id();
  const auto refused = [&](const std::function<void(ncclConfig_t&)>& spoil) {
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    spoil(config);
    ncclComm_t comm = reinterpret_cast<ncclComm_t>(&config);
    EXPECT_EQ(ncclCommInitRankConfig(&comm, 1, id, 0, &config), ncclInvalidArgument);
    EXPECT_EQ(comm, nullptr);
    return last();
  };
  EXPECT_THAT(refused([](ncclConfig_t& c) { c.magic = 0xdeadbeef; }),
              AllOf(HasSubstr("magic is 0xdeadbeef"), HasSubstr("NCCL_CONFIG_INITIALIZER")));
  EXPECT_THAT(refused([](ncclConfig_t& c) { c.size = 0; }), HasSubstr("size is 0"));
  EXPECT_THAT(refused([](ncclConfig_t& c) { c.size = 1 << 20; }), HasSubstr("size is 1048576"));
  EXPECT_THAT(refused([](ncclConfig_t& c) { c.version = 2100; }), HasSubstr("version is 2100"));
  EXPECT_THAT(refused([](ncclConfig_t& c) { c.blocking = 2; }), HasSubstr("blocking is 2, wanted 0 to 1"));
  EXPECT_THAT(refused([](ncclConfig_t& c) { c.minCTAs = 0; }), HasSubstr("minCTAs is 0, wanted at least 1"));
  EXPECT_THAT(refused([](ncclConfig_t& c) { c.minCTAs = 8, c.maxCTAs = 4; }), HasSubstr("more than maxCTAs"));
  EXPECT_THAT(refused([](ncclConfig_t& c) { c.splitShare = -1; }), HasSubstr("splitShare is -1"));
}

// A program built with an earlier or later header passes a structure of another size.
TEST(NcclConfig, StructuresOfOtherVersionsAreTaken) {
  const ncclUniqueId id = Ranks::make_id();
  struct Longer {
    ncclConfig_t known = NCCL_CONFIG_INITIALIZER;
    int more[16] = {};
  } longer;
  longer.known.size = sizeof longer;
  longer.known.version = NCCL_VERSION(2, 40, 0);
  ncclConfig_t first = NCCL_CONFIG_INITIALIZER;
  first.size = 24;
  first.version = NCCL_VERSION(2, 14, 3);
  first.cgaClusterSize = -7;  // in the old one's padding
  for (ncclConfig_t* config : {&longer.known, &first}) {
    ncclComm_t comm = nullptr;
    EXPECT_NCCL(ncclSuccess, ncclCommInitRankConfig(&comm, 1, id, 0, config));
    EXPECT_NCCL(ncclSuccess, sum_of_ones(comm, 1));
    EXPECT_NCCL(ncclSuccess, ncclCommDestroy(comm));
  }
}

// A program polls from a thread of its own what another one has met.
TEST(NcclErrors, TheLastIsThisThreadsElseTheProcesss) {
  std::thread([] {
    EXPECT_EQ(ncclGetVersion(nullptr), ncclInvalidArgument);
    EXPECT_THAT(last(), HasSubstr("ncclGetVersion"));
  }).join();
  std::thread([] { EXPECT_THAT(last(), HasSubstr("ncclGetVersion")); }).join();
  EXPECT_EQ(ncclGroupEnd(), ncclInvalidUsage);
  EXPECT_THAT(last(), HasSubstr("ncclGroupEnd: no group was started"));
}

TEST(NcclArguments, EachIsNamedWithItsValue) {
  Ranks ranks(1);
  ncclComm_t comm = ranks[0];
  float x = 1;
  EXPECT_EQ(ncclAllReduce(&x, &x, 1, ncclDataType_t(12), ncclSum, comm, nullptr), ncclInvalidArgument);
  EXPECT_THAT(last(), HasSubstr("ncclAllReduce: datatype is 12"));
  EXPECT_EQ(ncclAllReduce(&x, &x, 1, ncclFloat, ncclRedOp_t(77), comm, nullptr), ncclInvalidArgument);
  EXPECT_THAT(last(), HasSubstr("op is 77"));
  EXPECT_EQ(ncclBroadcast(&x, &x, 1, ncclFloat, 1, comm, nullptr), ncclInvalidArgument);
  EXPECT_THAT(last(), HasSubstr("ncclBroadcast: root is 1, wanted a rank from 0 to 0"));
  EXPECT_EQ(ncclSend(&x, 1, ncclFloat, -1, comm, nullptr), ncclInvalidArgument);
  EXPECT_EQ(ncclAllReduce(nullptr, &x, 1, ncclFloat, ncclSum, comm, nullptr), ncclInvalidArgument);
  EXPECT_THAT(last(), HasSubstr("sendbuff is NULL"));
  EXPECT_EQ(ncclAllGather(&x, nullptr, 1, ncclFloat, comm, nullptr), ncclInvalidArgument);
  EXPECT_EQ(ncclAllReduce(&x, &x, std::size_t(1) << 62, ncclFloat, ncclSum, comm, nullptr), ncclInvalidArgument);
  EXPECT_EQ(ncclCommCount(comm, nullptr), ncclInvalidArgument);
  EXPECT_EQ(ncclCommSplit(comm, -2, 0, &comm, nullptr), ncclInvalidArgument);
  EXPECT_NCCL(ncclSuccess, sum_of_ones(ranks[0], 1)) << "a refused call leaves it as it was";
  ncclResult_t state = ncclInternalError;
  EXPECT_NCCL(ncclSuccess, ncclCommGetAsyncError(ranks[0], &state));
  EXPECT_EQ(state, ncclSuccess);
}

TEST(NcclArguments, HandlesThatAreNoneAreErrors) {
  ncclUniqueId nothing{};
  ncclComm_t comm = nullptr;
  int count = 0;
  EXPECT_EQ(ncclCommInitRank(&comm, 2, nothing, 0), ncclInvalidArgument) << last();
  EXPECT_EQ(ncclCommInitRank(&comm, 2, Ranks::make_id(), 2), ncclInvalidArgument);
  EXPECT_THAT(last(), HasSubstr("rank is 2, wanted 0 to 1"));
  EXPECT_EQ(ncclCommCount(nullptr, &count), ncclInvalidArgument);
  EXPECT_EQ(ncclCommDestroy(nullptr), ncclSuccess);
  ncclComm_t one = nullptr;
  ASSERT_EQ(ncclCommInitAll(&one, 1, nullptr), ncclSuccess);
  EXPECT_NCCL(ncclSuccess, ncclCommFinalize(one));
  EXPECT_EQ(sum_of_ones(one, 1), ncclInvalidUsage);
  EXPECT_THAT(last(), HasSubstr("was finalized"));
  EXPECT_NCCL(ncclSuccess, ncclCommDestroy(one));
  EXPECT_EQ(ncclCommDestroy(one), ncclInvalidArgument);
  EXPECT_EQ(sum_of_ones(one, 1), ncclInvalidArgument);
  EXPECT_THAT(last(), HasSubstr("was destroyed"));
}

TEST(NcclGroups, ARefusedCallRefusesTheGroup) {
  Ranks ranks(2);
  float x = 1;
  ASSERT_EQ(ncclGroupStart(), ncclSuccess);
  EXPECT_NCCL(ncclSuccess, ncclAllReduce(&x, &x, 1, ncclFloat, ncclSum, ranks[0], nullptr));
  EXPECT_EQ(ncclSend(&x, 1, ncclFloat, 5, ranks[0], nullptr), ncclInvalidArgument);
  EXPECT_EQ(ncclGroupEnd(), ncclInvalidArgument);
  EXPECT_EQ(ncclGroupEnd(), ncclInvalidUsage);
  ASSERT_EQ(ncclGroupStart(), ncclSuccess);
  EXPECT_NCCL(ncclSuccess, ncclSend(&x, 1, ncclFloat, 0, ranks[0], nullptr));
  EXPECT_EQ(ncclGroupEnd(), ncclInvalidUsage);
  EXPECT_THAT(last(), HasSubstr("rank 0 sends to itself without a matching ncclRecv"));
  ranks.run([](int, ncclComm_t comm) {
    EXPECT_NCCL(ncclSuccess, sum_of_ones(comm, 2)) << "of neither group anything was started";
  });
}

TEST(NcclFailures, RanksThatCallDifferentThingsAreTold) {
  Ranks ranks(2);
  ranks.run([](int rank, ncclComm_t comm) {
    std::vector<float> x(100, 1);
    const ncclResult_t result = rank == 0 ? ncclAllReduce(x.data(), x.data(), 100, ncclFloat, ncclSum, comm, nullptr)
                                          : ncclAllReduce(x.data(), x.data(), 99, ncclFloat, ncclSum, comm, nullptr);
    EXPECT_EQ(result, ncclInvalidUsage);
    EXPECT_THAT(last(comm), AllOf(HasSubstr("all_reduce f32[100] sum"), HasSubstr("all_reduce f32[99] sum")));
    ncclResult_t state = ncclSuccess;
    EXPECT_NCCL(ncclSuccess, ncclCommGetAsyncError(comm, &state));
    EXPECT_EQ(state, ncclInvalidUsage);
    EXPECT_EQ(sum_of_ones(comm, 2), ncclInvalidUsage) << "it is broken";
  });
}

// The process of rank 3 is killed; the others are told by whom, go on without it, and destroy what it broke.
TEST(NcclFailures, AKilledRankIsNamedAndTheOthersShrink) {
  const ncclUniqueId id = Ranks::make_id();
  Process killed(3, 4, id, "die");
  Ranks ranks(4, 3, nullptr, id);
  ranks.run([](int, ncclComm_t comm) {
    EXPECT_NCCL(ncclSuccess, sum_of_ones(comm, 4));
    const auto start = Clock::now();
    EXPECT_EQ(sum_of_ones(comm, 4, 1 << 16), ncclRemoteError);
    EXPECT_LT(Clock::now() - start, std::chrono::seconds(30));
    EXPECT_THAT(last(comm), AllOf(HasSubstr("peer_lost (rank 3)"), HasSubstr("pid")));
    ncclResult_t state = ncclSuccess;
    EXPECT_NCCL(ncclSuccess, ncclCommGetAsyncError(comm, &state));
    EXPECT_EQ(state, ncclRemoteError);
    int excluded = 3;
    ncclComm_t left = nullptr;
    EXPECT_NCCL(ncclSuccess, ncclCommShrink(comm, &excluded, 1, &left, nullptr, NCCL_SHRINK_ABORT));
    EXPECT_NCCL(ncclSuccess, sum_of_ones(left, 3, 1 << 16));
    EXPECT_NCCL(ncclSuccess, ncclCommDestroy(left));
  });
}

TEST(NcclFailures, AbortFromAnotherThreadEndsACallThatWaits) {
  Ranks ranks(2);
  std::atomic<bool> called{false};
  std::thread waiter([&] {
    float x = 1;
    called = true;
    const ncclResult_t result = ncclAllReduce(&x, &x, 1, ncclFloat, ncclSum, ranks[0], nullptr);  // rank 1 never comes
    EXPECT_THAT(result, AnyOf(ncclRemoteError, ncclInvalidUsage, ncclInvalidArgument));           // or it had not begun
  });
  while (!called) std::this_thread::yield();
  EXPECT_NCCL(ncclSuccess, ncclCommAbort(ranks[0]));
  waiter.join();
  EXPECT_EQ(ncclCommAbort(ranks[0]), ncclInvalidArgument) << "the handle is gone";
  ranks[0] = nullptr;
  // What rank 0 had sent before may be enough for one call.
  ncclResult_t told = ncclSuccess;
  for (int calls = 0; calls < 2 && told == ncclSuccess; ++calls) told = sum_of_ones(ranks[1], 2);
  EXPECT_EQ(told, ncclRemoteError) << "the other rank is told";
  EXPECT_THAT(last(ranks[1]), AllOf(HasSubstr("rank 0"), HasSubstr("ncclCommAbort")));
}

TEST(NcclFailures, ARevokedCommunicatorCanBeSplitAndShrunk) {
  Ranks ranks(3);
  std::atomic<bool> called{false};
  std::thread waiter([&] {
    called = true;
    EXPECT_NE(sum_of_ones(ranks[0], 3, 1000), ncclSuccess);  // the others never come
  });
  while (!called) std::this_thread::yield();
  ranks.run([](int rank, ncclComm_t comm) {
    EXPECT_EQ(ncclCommRevoke(comm, 1), ncclInvalidArgument);
    EXPECT_NCCL(ncclSuccess, ncclCommRevoke(comm, NCCL_REVOKE_DEFAULT));
    ncclResult_t state = ncclInternalError;
    EXPECT_NCCL(ncclSuccess, ncclCommGetAsyncError(comm, &state));
    EXPECT_EQ(state, ncclSuccess);
    EXPECT_EQ(sum_of_ones(comm, 3), ncclInvalidUsage);
    EXPECT_EQ(ncclCommFinalize(comm), ncclInvalidUsage);
    ncclComm_t part = nullptr;
    EXPECT_NCCL(ncclSuccess, ncclCommSplit(comm, rank == 1, rank, &part, nullptr));
    EXPECT_NCCL(ncclSuccess, sum_of_ones(part, rank == 1 ? 1 : 2));
    EXPECT_NCCL(ncclSuccess, ncclCommDestroy(part));
  });
  waiter.join();
  Ranks others(3);
  others.run([](int rank, ncclComm_t comm) {
    EXPECT_NCCL(ncclSuccess, ncclCommRevoke(comm, NCCL_REVOKE_DEFAULT));
    if (rank == 1) return;
    int excluded = 1;
    ncclComm_t left = nullptr;
    EXPECT_NCCL(ncclSuccess, ncclCommShrink(comm, &excluded, 1, &left, nullptr, NCCL_SHRINK_DEFAULT));
    EXPECT_NCCL(ncclSuccess, sum_of_ones(left, 2));
    EXPECT_NCCL(ncclSuccess, ncclCommDestroy(left));
  });
}

TEST(NcclFailures, ErrorStringsAreOfEachResult) {
  std::set<std::string> texts;
  for (int r = 0; r < ncclNumResults; ++r) texts.insert(ncclGetErrorString(ncclResult_t(r)));
  EXPECT_EQ(texts.size(), std::size_t(ncclNumResults));
  EXPECT_STREQ(ncclGetErrorString(ncclResult_t(99)), ncclGetErrorString(ncclResult_t(-1)));
}

}  // namespace
}  // namespace tutti::test
