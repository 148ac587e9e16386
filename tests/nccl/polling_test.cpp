// Non-blocking communicators: calls return ncclInProgress, and ncclCommGetAsyncError says when they are through.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <iterator>

#include "tests/nccl/ranks.h"

namespace tutti::test {
namespace {

using ::testing::HasSubstr;

ncclConfig_t non_blocking() {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  return config;
}

// Until it says something else; counts how often it said so.
ncclResult_t poll(ncclComm_t comm, int* times = nullptr) {
  ncclResult_t state = ncclInProgress;
  for (int n = 1;; ++n) {
    EXPECT_NCCL(ncclSuccess, ncclCommGetAsyncError(comm, &state));
    if (state != ncclInProgress) return state;
    if (times) *times = n;
    std::this_thread::yield();
  }
}

TEST(NcclPolling, OneThreadMakesAndUsesTwoRanks) {
  const ncclUniqueId id = Ranks::make_id();
  ncclConfig_t config = non_blocking();
  ncclComm_t comms[2];
  EXPECT_EQ(ncclCommInitRankConfig(&comms[0], 2, id, 0, &config), ncclInProgress);
  ASSERT_NE(comms[0], nullptr);
  int times = 0, rank = -1;
  ncclResult_t state = ncclSuccess;
  EXPECT_NCCL(ncclSuccess, ncclCommGetAsyncError(comms[0], &state));
  EXPECT_EQ(state, ncclInProgress) << "the other rank has not come";
  EXPECT_EQ(ncclCommUserRank(comms[0], &rank), ncclInvalidArgument) << "it is not made yet";
  EXPECT_EQ(ncclCommInitRankConfig(&comms[1], 2, id, 1, &config), ncclInProgress);
  EXPECT_EQ(poll(comms[0], &times), ncclSuccess);
  EXPECT_EQ(poll(comms[1]), ncclSuccess);
  float x[2] = {2, 3}, y[2] = {};
  EXPECT_EQ(ncclAllReduce(&x[0], &y[0], 1, ncclFloat, ncclSum, comms[0], nullptr), ncclInProgress);
  EXPECT_EQ(ncclAllReduce(&x[0], &y[0], 1, ncclFloat, ncclSum, comms[0], nullptr), ncclInvalidArgument)
      << "the one before is still under way";
  EXPECT_THAT(ncclGetLastError(nullptr), HasSubstr("still in progress"));
  EXPECT_NCCL(ncclSuccess, ncclCommGetAsyncError(comms[0], &state));
  EXPECT_EQ(state, ncclInProgress);
  EXPECT_EQ(ncclAllReduce(&x[1], &y[1], 1, ncclFloat, ncclSum, comms[1], nullptr), ncclInProgress);
  for (ncclComm_t comm : comms) EXPECT_EQ(poll(comm), ncclSuccess);
  EXPECT_EQ(y[0], 5);
  EXPECT_EQ(y[1], 5);
  ncclComm_t parts[2];
  EXPECT_EQ(ncclGroupStart(), ncclSuccess);
  for (int r = 0; r < 2; ++r) EXPECT_NCCL(ncclSuccess, ncclCommSplit(comms[r], 0, -r, &parts[r], nullptr));
  EXPECT_EQ(ncclGroupEnd(), ncclInProgress);
  for (int r = 0; r < 2; ++r) EXPECT_EQ(poll(parts[r]), ncclSuccess);
  EXPECT_NCCL(ncclSuccess, ncclCommUserRank(parts[0], &rank));
  EXPECT_EQ(rank, 1);
  for (ncclComm_t comm : {parts[0], parts[1], comms[0], comms[1]}) {
    EXPECT_EQ(poll(comm), ncclSuccess);
    EXPECT_EQ(ncclCommFinalize(comm), ncclSuccess);
    EXPECT_NCCL(ncclSuccess, ncclCommDestroy(comm));
  }
}

// What is wrong with a call is its own result, and the communicator stays as it was.
TEST(NcclPolling, AWrongArgumentIsTheCallsOwn) {
  const ncclUniqueId id = Ranks::make_id();
  ncclConfig_t config = non_blocking();
  ncclComm_t comms[2];
  for (int r = 0; r < 2; ++r) EXPECT_EQ(ncclCommInitRankConfig(&comms[r], 2, id, r, &config), ncclInProgress);
  for (ncclComm_t comm : comms) ASSERT_EQ(poll(comm), ncclSuccess);
  float x[4] = {1, 2, 3, 4};
  const std::int64_t large = (std::int64_t(1) << 60) + 1;
  ncclRedOp_t factor;
  EXPECT_NCCL(ncclSuccess, ncclRedOpCreatePreMulSum(&factor, x, ncclFloat, ncclScalarDevice, comms[0]));
  const std::function<ncclResult_t(ncclComm_t)> wrong[] = {
      [&](ncclComm_t c) { return ncclAllReduce(x, x + 1, 2, ncclFloat, ncclSum, c, nullptr); },
      [&](ncclComm_t c) { return ncclAllReduce(x, x, std::size_t(1) << 62, ncclFloat, ncclSum, c, nullptr); },
      [&](ncclComm_t c) { return ncclAllReduce(nullptr, x, 1, ncclFloat, ncclSum, c, nullptr); },
      [&](ncclComm_t c) { return ncclBroadcast(x, x, 1, ncclFloat, 2, c, nullptr); },
      [&](ncclComm_t c) { return ncclAllReduce(x, x, 1, ncclDataType_t(40), ncclSum, c, nullptr); },
      [&](ncclComm_t c) { return ncclAllReduce(x, x, 1, ncclInt8, factor, c, nullptr); },
      [&](ncclComm_t c) {
        ncclRedOp_t op;
        return ncclRedOpCreatePreMulSum(&op, const_cast<std::int64_t*>(&large), ncclInt64, ncclScalarHostImmediate, c);
      },
  };
  for (std::size_t i = 0; i < std::size(wrong); ++i) {
    EXPECT_EQ(wrong[i](comms[0]), ncclInvalidArgument) << i;
    EXPECT_EQ(poll(comms[0]), ncclSuccess) << i;
    EXPECT_EQ(ncclGroupStart(), ncclSuccess);
    EXPECT_EQ(wrong[i](comms[0]), ncclInvalidArgument) << i;
    const ncclResult_t ended = ncclGroupEnd();
    EXPECT_TRUE(ended == ncclInvalidArgument || i == std::size(wrong) - 1) << i << " " << ended;
    EXPECT_EQ(poll(comms[0]), ncclSuccess) << i;
  }
  EXPECT_EQ(ncclSend(x, 1, ncclFloat, 0, comms[0], nullptr), ncclInvalidUsage) << "to itself, and nobody receives";
  EXPECT_EQ(poll(comms[0]), ncclSuccess);
  for (ncclComm_t comm : comms) EXPECT_EQ(ncclAllReduce(x, x, 0, ncclFloat, ncclSum, comm, nullptr), ncclInProgress);
  for (ncclComm_t comm : comms) EXPECT_EQ(poll(comm), ncclSuccess);
  float y[2] = {};
  for (int r = 0; r < 2; ++r) EXPECT_EQ(ncclAllReduce(&x[r], &y[r], 1, ncclFloat, ncclSum, comms[r], nullptr), ncclInProgress);
  for (ncclComm_t comm : comms) EXPECT_EQ(poll(comm), ncclSuccess);
  EXPECT_EQ(y[0] + y[1], 6);
  for (ncclComm_t comm : comms) EXPECT_NCCL(ncclSuccess, ncclCommDestroy(comm));
}

TEST(NcclPolling, AFailureShowsInTheState) {
  const ncclUniqueId id = Ranks::make_id();
  ncclConfig_t config = non_blocking();
  Process killed(1, 2, id, "die");
  ncclComm_t comm = nullptr;
  EXPECT_EQ(ncclCommInitRankConfig(&comm, 2, id, 0, &config), ncclInProgress);
  ASSERT_EQ(poll(comm), ncclSuccess);
  float x = 1;
  EXPECT_EQ(ncclAllReduce(&x, &x, 1, ncclFloat, ncclSum, comm, nullptr), ncclInProgress);
  EXPECT_EQ(poll(comm), ncclSuccess);
  ncclResult_t state = ncclAllReduce(&x, &x, 1, ncclFloat, ncclSum, comm, nullptr);
  if (state == ncclInProgress) state = poll(comm);
  EXPECT_EQ(state, ncclRemoteError);
  EXPECT_THAT(ncclGetLastError(comm), HasSubstr("rank 1"));
  EXPECT_NCCL(ncclSuccess, ncclCommAbort(comm));
}

TEST(NcclPolling, AbortDoesNotWaitForRanksThatDoNotCome) {
  const ncclUniqueId id = Ranks::make_id();
  ncclConfig_t config = non_blocking();
  ncclComm_t comm = nullptr;
  EXPECT_EQ(ncclCommInitRankConfig(&comm, 2, id, 0, &config), ncclInProgress);
  const auto start = std::chrono::steady_clock::now();
  EXPECT_NCCL(ncclSuccess, ncclCommAbort(comm));
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(20));
}

TEST(NcclPolling, AGroupIsOfOneKind) {
  ncclConfig_t config = non_blocking();
  ncclComm_t polled = nullptr, blocking = nullptr;
  ncclUniqueId id = Ranks::make_id();
  EXPECT_EQ(ncclCommInitRankConfig(&polled, 1, id, 0, &config), ncclInProgress);
  EXPECT_EQ(poll(polled), ncclSuccess);
  EXPECT_NCCL(ncclSuccess, ncclCommInitRank(&blocking, 1, id, 0));
  float x = 1;
  EXPECT_EQ(ncclGroupStart(), ncclSuccess);
  EXPECT_NCCL(ncclSuccess, ncclAllReduce(&x, &x, 1, ncclFloat, ncclSum, polled, nullptr));
  EXPECT_EQ(ncclAllReduce(&x, &x, 1, ncclFloat, ncclSum, blocking, nullptr), ncclInvalidArgument);
  EXPECT_EQ(ncclGroupEnd(), ncclInvalidArgument);
  EXPECT_NCCL(ncclSuccess, ncclCommDestroy(polled));
  EXPECT_NCCL(ncclSuccess, ncclCommDestroy(blocking));
}

}  // namespace
}  // namespace tutti::test
