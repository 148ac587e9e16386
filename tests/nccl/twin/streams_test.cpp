// libnccl.so.2 on twins of GPUs: calls take their turn on streams and the host waits for nothing; groups, several ranks of
// one thread and of one GPU, polling, memory, scalars; and communicators that end while streams still have their work.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <barrier>
#include <random>

#include "tests/nccl/ranks.h"
#include "perf/gpu/gpu.h"

namespace tutti::test {
namespace {

using ::testing::HasSubstr;
using Doubles = std::vector<double>;

// Memory of a GPU with a stream of its own, for one rank; filled on the stream.
class Array {
 public:
  Array(gpu_stream stream, Doubles values) : stream_(stream), host_(std::move(values)) {
    at_ = static_cast<double*>(gpu_allocate(host_.size() * sizeof(double)));
    gpu_copy(at_, host_.data(), host_.size() * sizeof(double), stream_);
  }
  Array(gpu_stream stream, std::size_t count) : Array(stream, Doubles(count, -1)) {}
  ~Array() {
    gpu_synchronize(stream_);
    gpu_release(at_);
  }
  Array(const Array&) = delete;
  Array& operator=(const Array&) = delete;
  double* at() { return at_; }
  Doubles read() {  // behind what the stream has to do
    gpu_copy(host_.data(), at_, host_.size() * sizeof(double), stream_);
    gpu_synchronize(stream_);
    return host_;
  }

 private:
  gpu_stream stream_;
  Doubles host_;
  double* at_;
};

Doubles drawn(int rank, std::size_t count) {
  std::mt19937 random{unsigned(rank)};
  Doubles values(count);
  for (double& x : values) x = double(random() % 1000);  // whole: sums are exact
  return values;
}
Doubles sum_of(int ranks, std::size_t count) {
  Doubles sum(count);
  for (int r = 0; r < ranks; ++r) {
    const Doubles one = drawn(r, count);
    for (std::size_t i = 0; i < count; ++i) sum[i] += one[i];
  }
  return sum;
}

// Each rank on a GPU of its own, by turns.
void on_gpus(int count, const std::function<void(int rank, ncclComm_t comm, gpu_stream stream)>& body, ncclConfig_t* config = nullptr) {
  const ncclUniqueId id = Ranks::make_id();
  in_threads(count, [&](int rank) {
    gpu_use(rank % gpu_count());
    ncclComm_t comm = nullptr;
    const ncclResult_t made = ncclCommInitRankConfig(&comm, count, id, rank, config);
    ncclResult_t state = made;
    while (state == ncclInProgress && ncclCommGetAsyncError(comm, &state) == ncclSuccess) std::this_thread::yield();
    ASSERT_EQ(state, ncclSuccess) << ncclGetLastError(nullptr);
    body(rank, comm, gpu_make_stream());
  });
}

constexpr std::size_t kMany = 700'000;  // doubles: several slices

TEST(NcclStreams, CallsReturnAtOnceAndTakeTheirTurn) {
  on_gpus(3, [](int rank, ncclComm_t comm, gpu_stream stream) {
    gpu_hold(stream, 1);
    Array x(stream, drawn(rank, kMany));
    EXPECT_NCCL(ncclSuccess, ncclAllReduce(x.at(), x.at(), kMany, ncclDouble, ncclSum, comm, stream));
    EXPECT_NCCL(ncclSuccess, ncclAllReduce(x.at(), x.at(), kMany, ncclDouble, ncclMax, comm, stream));
    ncclResult_t state = ncclInternalError;
    EXPECT_NCCL(ncclSuccess, ncclCommGetAsyncError(comm, &state));
    EXPECT_EQ(state, ncclSuccess);
    gpu_hold(stream, 0);
    EXPECT_EQ(x.read(), sum_of(3, kMany));
    EXPECT_NCCL(ncclSuccess, ncclCommFinalize(comm));
    EXPECT_NCCL(ncclSuccess, ncclCommDestroy(comm));
  });
}

TEST(NcclStreams, EverybodySendsToEverybodyInAGroup) {
  on_gpus(3, [](int rank, ncclComm_t comm, gpu_stream stream) {
    Array out(stream, drawn(rank, 3 * kMany)), in(stream, 3 * kMany);
    EXPECT_NCCL(ncclSuccess, ncclGroupStart());
    for (int peer = 0; peer < 3; ++peer) {
      EXPECT_NCCL(ncclSuccess, ncclSend(out.at() + std::size_t(peer) * kMany, kMany, ncclDouble, peer, comm, stream));
      EXPECT_NCCL(ncclSuccess, ncclRecv(in.at() + std::size_t(peer) * kMany, kMany, ncclDouble, peer, comm, stream));
    }
    EXPECT_NCCL(ncclSuccess, ncclGroupEnd());
    const Doubles got = in.read();
    for (int peer = 0; peer < 3; ++peer) {
      const Doubles theirs = drawn(peer, 3 * kMany);
      EXPECT_TRUE(std::equal(theirs.begin() + rank * std::ptrdiff_t(kMany), theirs.begin() + (rank + 1) * std::ptrdiff_t(kMany),
                             got.begin() + peer * std::ptrdiff_t(kMany))) << peer;
    }
    EXPECT_NCCL(ncclSuccess, ncclCommDestroy(comm));
  });
}

// Ranks with a GPU each move nothing through the host, whatever the call, and whether it is in a group or not.
TEST(NcclStreams, GpusThatReachEachOtherUseTheirMemory) {
  on_gpus(2, [](int rank, ncclComm_t comm, gpu_stream stream) {
    Array x(stream, drawn(rank, kMany)), all(stream, 2 * kMany), got(stream, kMany);
    const std::size_t before = gpu_kernels();
    if (rank == 0) {
      EXPECT_NCCL(ncclSuccess, ncclGroupStart());
    }
    EXPECT_NCCL(ncclSuccess, ncclAllGather(x.at(), all.at(), kMany, ncclDouble, comm, stream));
    if (rank == 0) {
      EXPECT_NCCL(ncclSuccess, ncclSend(x.at(), kMany, ncclDouble, 1, comm, stream));
    }
    if (rank == 1) {
      EXPECT_NCCL(ncclSuccess, ncclRecv(got.at(), kMany, ncclDouble, 0, comm, stream));
    }
    EXPECT_NCCL(ncclSuccess, ncclReduceScatter(all.at(), all.at() + std::size_t(rank) * kMany, kMany, ncclDouble, ncclSum, comm, stream));
    if (rank == 0) {
      EXPECT_NCCL(ncclSuccess, ncclGroupEnd());
    }
    const Doubles sums = all.read(), theirs = got.read();
    EXPECT_GE(gpu_kernels() - before, 2u);
    if (rank == 1) {
      EXPECT_EQ(theirs, drawn(0, kMany));
    }
    Doubles expected = drawn(rank, kMany);  // both hold all of it
    for (double& v : expected) v *= 2;
    EXPECT_TRUE(std::equal(expected.begin(), expected.end(), sums.begin() + rank * std::ptrdiff_t(kMany)));
    EXPECT_NCCL(ncclSuccess, ncclCommDestroy(comm));
  });
  const std::size_t before = gpu_kernels();
  on_gpus(3, [](int rank, ncclComm_t comm, gpu_stream stream) {  // two share a GPU
    Array x(stream, drawn(rank, 1000));
    EXPECT_NCCL(ncclSuccess, ncclAllReduce(x.at(), x.at(), 1000, ncclDouble, ncclSum, comm, stream));
    EXPECT_EQ(x.read(), sum_of(3, 1000));
    EXPECT_NCCL(ncclSuccess, ncclCommDestroy(comm));
  });
  EXPECT_EQ(gpu_kernels(), before);
}

// Four ranks on two GPUs, all of one thread.
TEST(NcclStreams, OneThreadHasRanksThatShareGpus) {
  ncclComm_t comms[4], parts[4];
  const int devices[] = {0, 1, 0, 0}, too_many[] = {0, 7};
  EXPECT_EQ(ncclCommInitAll(comms, 2, too_many), ncclInvalidArgument);
  EXPECT_THAT(ncclGetLastError(nullptr), HasSubstr("rank 1 is to be on device 7, and there are 2"));
  ASSERT_EQ(ncclCommInitAll(comms, 4, devices), ncclSuccess) << ncclGetLastError(nullptr);
  std::vector<std::unique_ptr<Array>> x;
  std::vector<gpu_stream> streams;
  for (int r = 0; r < 4; ++r) {
    int device = -1;
    EXPECT_NCCL(ncclSuccess, ncclCommCuDevice(comms[r], &device));
    EXPECT_EQ(device, devices[r]);
    gpu_use(devices[r]);
    streams.push_back(gpu_make_stream());
    x.push_back(std::make_unique<Array>(streams.back(), drawn(r, 1000)));
  }
  EXPECT_NCCL(ncclSuccess, ncclGroupStart());
  for (int r = 0; r < 4; ++r) EXPECT_NCCL(ncclSuccess, ncclCommSplit(comms[r], r / 2, r, &parts[r], nullptr));
  EXPECT_NCCL(ncclSuccess, ncclGroupEnd());
  EXPECT_NCCL(ncclSuccess, ncclGroupStart());
  for (int r = 0; r < 4; ++r) EXPECT_NCCL(ncclSuccess, ncclAllReduce(x[std::size_t(r)]->at(), x[std::size_t(r)]->at(), 1000, ncclDouble, ncclSum, comms[r], streams[std::size_t(r)]));
  EXPECT_NCCL(ncclSuccess, ncclGroupEnd());
  for (auto& one : x) EXPECT_EQ(one->read(), sum_of(4, 1000));
  EXPECT_NCCL(ncclSuccess, ncclGroupStart());
  for (int r = 0; r < 4; ++r) EXPECT_NCCL(ncclSuccess, ncclAllReduce(x[std::size_t(r)]->at(), x[std::size_t(r)]->at(), 1000, ncclDouble, ncclMin, parts[r], streams[std::size_t(r)]));
  EXPECT_NCCL(ncclSuccess, ncclGroupEnd());
  for (auto& one : x) EXPECT_EQ(one->read(), sum_of(4, 1000));
  EXPECT_NCCL(ncclSuccess, ncclGroupStart());
  for (int r = 2; r < 4; ++r) EXPECT_NCCL(ncclSuccess, ncclAllReduce(x[2]->at(), x[2]->at(), 1, ncclDouble, ncclSum, parts[r], streams[2]));
  EXPECT_EQ(ncclGroupEnd(), ncclInvalidUsage);
  EXPECT_THAT(ncclGetLastError(nullptr), HasSubstr("ranks on one GPU need a stream each"));
  for (ncclComm_t comm : parts) EXPECT_NCCL(ncclSuccess, ncclCommDestroy(comm));
  for (ncclComm_t comm : comms) EXPECT_NCCL(ncclSuccess, ncclCommDestroy(comm));
}

TEST(NcclStreams, HostMemoryIsServedBehindTheStream) {
  on_gpus(2, [](int rank, ncclComm_t comm, gpu_stream stream) {
    Doubles host(100), sum(100);
    Array x(stream, drawn(rank, 100));
    gpu_copy(host.data(), x.at(), 800, stream);
    EXPECT_NCCL(ncclSuccess, ncclAllReduce(host.data(), sum.data(), 100, ncclDouble, ncclSum, comm, stream));
    EXPECT_EQ(sum, sum_of(2, 100)) << "complete at return";
    EXPECT_EQ(ncclAllReduce(x.at(), sum.data(), 100, ncclDouble, ncclSum, comm, stream), ncclInvalidArgument);
    EXPECT_THAT(ncclGetLastError(nullptr), HasSubstr("pageable"));
    gpu_pretend_capture(stream, 1);
    EXPECT_EQ(ncclAllReduce(x.at(), x.at(), 100, ncclDouble, ncclSum, comm, stream), ncclInvalidUsage);
    EXPECT_THAT(ncclGetLastError(nullptr), HasSubstr("captured into a graph"));
    gpu_pretend_capture(stream, 0);
    EXPECT_NCCL(ncclSuccess, ncclAllReduce(x.at(), x.at(), 100, ncclDouble, ncclSum, comm, stream));
    EXPECT_EQ(x.read(), sum_of(2, 100));
    EXPECT_NCCL(ncclSuccess, ncclCommDestroy(comm));
  });
}

// The factor of the device's scalar is what lies there when the stream comes to the operation.
TEST(NcclStreams, PreMulSumReadsTheDevicesScalarInItsTurn) {
  on_gpus(2, [](int rank, ncclComm_t comm, gpu_stream stream) {
    Array scalar(stream, Doubles{100}), x(stream, Doubles(kMany, 1)), y(stream, Doubles(10, 1));
    gpu_synchronize(stream);
    ncclRedOp_t op, now;
    double own = rank + 5, later = rank + 2;
    EXPECT_NCCL(ncclSuccess, ncclRedOpCreatePreMulSum(&op, scalar.at(), ncclDouble, ncclScalarDevice, comm));
    EXPECT_NCCL(ncclSuccess, ncclRedOpCreatePreMulSum(&now, &own, ncclDouble, ncclScalarHostImmediate, comm));
    own = 0;
    gpu_hold(stream, 1);
    gpu_copy(scalar.at(), &later, sizeof later, stream);
    EXPECT_NCCL(ncclSuccess, ncclAllReduce(x.at(), x.at(), kMany, ncclDouble, op, comm, stream));
    EXPECT_NCCL(ncclSuccess, ncclGroupStart());
    EXPECT_NCCL(ncclSuccess, ncclAllReduce(y.at(), y.at(), 10, ncclDouble, op, comm, stream));
    EXPECT_NCCL(ncclSuccess, ncclAllReduce(y.at(), y.at(), 10, ncclDouble, now, comm, stream));
    EXPECT_NCCL(ncclSuccess, ncclGroupEnd());
    gpu_hold(stream, 0);
    EXPECT_EQ(x.read(), Doubles(kMany, 2 + 3));
    EXPECT_EQ(y.read(), Doubles(10, (2 + 3) * 5 + (2 + 3) * 6));
    EXPECT_NCCL(ncclSuccess, ncclRedOpDestroy(op, comm));
    EXPECT_NCCL(ncclSuccess, ncclCommDestroy(comm));
  });
}

TEST(NcclStreams, MemoryIsTheGpusAndNothingIsTakenAfterWarmUp) {
  on_gpus(2, [](int rank, ncclComm_t comm, gpu_stream stream) {
    void *memory = nullptr, *handle = nullptr;
    EXPECT_NCCL(ncclSuccess, ncclMemAlloc(&memory, 8000));
    EXPECT_NCCL(ncclSuccess, ncclCommRegister(comm, memory, 8000, &handle));
    Doubles host = drawn(rank, 1000);
    gpu_copy(memory, host.data(), 8000, stream);
    std::size_t before = 0;
    double one = 1;
    for (int round = 0; round < 10; ++round) {
      EXPECT_NCCL(ncclSuccess, ncclAllReduce(memory, memory, 1000, ncclDouble, round ? ncclMax : ncclSum, comm, stream));
      EXPECT_NCCL(ncclSuccess, ncclGroupStart());
      EXPECT_NCCL(ncclSuccess, ncclSend(memory, 500, ncclDouble, 1 - rank, comm, stream));
      EXPECT_NCCL(ncclSuccess, ncclRecv(static_cast<double*>(memory) + 500, 500, ncclDouble, 1 - rank, comm, stream));
      EXPECT_NCCL(ncclSuccess, ncclGroupEnd());
      gpu_synchronize(stream);
      EXPECT_NCCL(ncclSuccess, ncclAllReduce(&one, &one, 1, ncclDouble, ncclMax, comm, stream));  // all are here
      if (round == 1) before = gpu_allocations();
    }
    EXPECT_EQ(gpu_allocations(), before);
    EXPECT_NCCL(ncclSuccess, ncclCommDeregister(comm, handle));
    EXPECT_NCCL(ncclSuccess, ncclCommDestroy(comm));
    EXPECT_NCCL(ncclSuccess, ncclMemFree(memory));
    EXPECT_EQ(ncclMemFree(memory), ncclInvalidArgument);
  });
}

TEST(NcclStreams, APolledCommunicatorTakesCallsOneAfterAnother) {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  on_gpus(2, [](int rank, ncclComm_t comm, gpu_stream stream) {
    Array x(stream, drawn(rank, kMany));
    const auto settled = [](ncclComm_t of) {
      ncclResult_t state = ncclInProgress;
      while (state == ncclInProgress && ncclCommGetAsyncError(of, &state) == ncclSuccess) std::this_thread::yield();
      return state;
    };
    gpu_hold(stream, 1);
    for (const ncclRedOp_t op : {ncclSum, ncclMin, ncclMax})
      EXPECT_NCCL(ncclSuccess, ncclAllReduce(x.at(), x.at(), kMany, ncclDouble, op, comm, stream));
    EXPECT_EQ(ncclAllReduce(x.at(), x.at() + 1, kMany, ncclDouble, ncclSum, comm, stream), ncclInvalidArgument);
    EXPECT_EQ(settled(comm), ncclSuccess);
    ncclComm_t part = nullptr;
    EXPECT_EQ(ncclCommSplit(comm, 0, rank, &part, nullptr), ncclInProgress);
    EXPECT_EQ(settled(part), ncclSuccess);
    EXPECT_EQ(ncclCommFinalize(comm), ncclInProgress);
    ncclResult_t state = ncclSuccess;
    EXPECT_NCCL(ncclSuccess, ncclCommGetAsyncError(comm, &state));
    EXPECT_EQ(state, ncclInProgress) << "the stream has not come to its end";
    gpu_hold(stream, 0);
    EXPECT_EQ(settled(comm), ncclSuccess);
    EXPECT_EQ(x.read(), sum_of(2, kMany));
    EXPECT_NCCL(ncclSuccess, ncclAllReduce(x.at(), x.at(), 10, ncclDouble, ncclMin, part, stream));
    EXPECT_NCCL(ncclSuccess, ncclCommDestroy(part));
    EXPECT_NCCL(ncclSuccess, ncclCommDestroy(comm));
    EXPECT_EQ(x.read(), sum_of(2, kMany));
  }, &config);
}

// One rank ends it while the streams of both have work of it; they go on, and the others are told.
TEST(NcclStreams, AbortShrinkAndRevokeLetTheStreamsGoOn) {
  std::barrier called(2);
  for (const char* how : {"abort", "shrink", "revoke"})
    on_gpus(2, [&](int rank, ncclComm_t comm, gpu_stream stream) {
      SCOPED_TRACE(how);
      Array x(stream, drawn(rank, kMany));
      gpu_synchronize(stream);
      gpu_hold(stream, 1);
      EXPECT_NCCL(ncclSuccess, ncclAllReduce(x.at(), x.at(), kMany, ncclDouble, ncclSum, comm, stream));
      EXPECT_NCCL(ncclSuccess, ncclGroupStart());
      EXPECT_NCCL(ncclSuccess, ncclSend(x.at(), kMany, ncclDouble, 1 - rank, comm, stream));
      EXPECT_NCCL(ncclSuccess, ncclAllReduce(x.at(), x.at(), 10, ncclDouble, ncclSum, comm, stream));
      EXPECT_NCCL(ncclSuccess, ncclGroupEnd());
      called.arrive_and_wait();
      ncclComm_t left = nullptr;
      if (how[0] == 'a') {
        ncclResult_t state = ncclSuccess;
        if (rank == 0) {
          EXPECT_NCCL(ncclSuccess, ncclCommAbort(comm));
        } else {
          while (state == ncclSuccess && ncclCommGetAsyncError(comm, &state) == ncclSuccess) std::this_thread::yield();
          EXPECT_EQ(state, ncclRemoteError);
          EXPECT_THAT(ncclGetLastError(comm), HasSubstr("ncclCommAbort"));
        }
      } else if (how[0] == 's') {
        EXPECT_NCCL(ncclSuccess, ncclCommShrink(comm, nullptr, 0, &left, nullptr, NCCL_SHRINK_ABORT));
      } else {
        EXPECT_NCCL(ncclSuccess, ncclCommRevoke(comm, NCCL_REVOKE_DEFAULT));
        EXPECT_NCCL(ncclSuccess, ncclCommSplit(comm, 0, rank, &left, nullptr));
      }
      gpu_hold(stream, 0);
      gpu_synchronize(stream);
      if (left) {
        Array y(stream, drawn(rank, 1000));
        EXPECT_NCCL(ncclSuccess, ncclAllReduce(y.at(), y.at(), 1000, ncclDouble, ncclSum, left, stream));
        EXPECT_EQ(y.read(), sum_of(2, 1000));
        EXPECT_NCCL(ncclSuccess, ncclCommDestroy(left));
      }
      if (how[0] == 'a' && rank == 0) return;  // it has gone with the abort
      EXPECT_NCCL(ncclSuccess, ncclCommDestroy(comm));
    });
}

// Destroyed without a look at the stream: what was called is done.
TEST(NcclStreams, DestroyWaitsForWhatWasCalled) {
  on_gpus(2, [](int rank, ncclComm_t comm, gpu_stream stream) {
    Array x(stream, drawn(rank, kMany));
    EXPECT_NCCL(ncclSuccess, ncclAllReduce(x.at(), x.at(), kMany, ncclDouble, ncclSum, comm, stream));
    EXPECT_NCCL(ncclSuccess, ncclCommDestroy(comm));
    EXPECT_EQ(x.read(), sum_of(2, kMany));
  });
}

}  // namespace
}  // namespace tutti::test
