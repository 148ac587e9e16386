// Ranks that are threads, on all GPUs that there are in turn (or on the one): use_gpu() tests the ways between them,
// and collectives are kernels in their memory. Where they share a GPU that is asked for.
#include <cuda_runtime_api.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <tests/gpu/gpu.h>
#include <tests/gpu/stress.h>

#include <cstdlib>
#include <random>
#include <thread>

namespace tutti::gpu {
namespace {

void must(cudaError_t error) { ASSERT_EQ(error, cudaSuccess) << cudaGetErrorString(error); }

// Without any call that waits for the whole device: where ranks share one, a peer's kernel may be waiting for this
// rank.
std::string steady(Communicator& comm, int rounds) {
  constexpr std::size_t kMost = 2'000'000;
  auto* const host = static_cast<std::int64_t*>(pinned(kMost * 8));
  const Memory memory(kMost * 8);
  const Stream stream;
  const auto s = static_cast<cudaStream_t>(stream.handle());
  std::mt19937_64 sizes(7);
  for (int round = 0; round < rounds; ++round) {
    const std::size_t n = 1 + sizes() % (round % 5 == 0 ? kMost : 5000);
    const auto value = [round](int rank, std::size_t i) {
      return std::int64_t(i * 31 + std::size_t(rank) * 1'000'003 + std::size_t(round));
    };
    for (std::size_t i = 0; i < n; ++i) host[i] = value(comm.rank(), i);
    must(cudaMemcpyAsync(memory.at(), host, n * 8, cudaMemcpyHostToDevice, s));
    const bool grouped = round % 4 == 3;
    if (grouped) comm.begin_group();
    Work work = comm.all_reduce(
        {.input = memory.at(), .output = memory.at(), .count = n, .type = DataType::i64, .stream = stream.handle()});
    if (grouped) (void)comm.barrier(stream.handle());
    if (grouped) work = comm.end_group();
    must(cudaMemcpyAsync(host, memory.at(), n * 8, cudaMemcpyDeviceToHost, s));
    stream.synchronize();
    if (const Status status = work.wait(); !status.ok()) return status.to_string();
    for (std::size_t i = 0; i < n; ++i) {
      std::int64_t expected = 0;
      for (int r = 0; r < comm.rank_count(); ++r) expected += value(r, i);
      if (host[i] != expected)
        return "round " + std::to_string(round) + ": element " + std::to_string(i) + " of " + std::to_string(n);
    }
  }
  const Status status = comm.barrier().wait();
  return status.ok() ? "" : status.to_string();
}

class Peers : public testing::TestWithParam<int> {};

TEST_P(Peers, KeepTheOrderOfTheirStreams) {
  std::string why;
  if (!device(&why)) GTEST_SKIP() << why;
  int gpus = 1;
  cudaGetDeviceCount(&gpus);
  setenv("TUTTI_P2P", gpus < GetParam() ? "1" : "auto", 1);
  const auto id = Communicator::make_unique_id();
  ASSERT_TRUE(id.ok()) << id.status().to_string();
  std::vector<std::thread> threads;
  for (int r = 0; r < GetParam(); ++r)
    threads.emplace_back([&, r] {
      cudaSetDevice(r % gpus);
      Options options;
      options.job_key = "gpu";
      auto comm = Communicator::create(r, GetParam(), *id, options);
      ASSERT_TRUE(comm.ok()) << comm.status().to_string();
      const auto how = comm->use_gpu();
      ASSERT_TRUE(how.ok()) << how.status().to_string();
      std::printf("rank %d of %d on GPU %d: %s\n", r, GetParam(), r % gpus, how->c_str());
      if (gpus ==
          1) {  // between several the way may be missing: then it is told, and the results below are right all the same
        EXPECT_THAT(*how, testing::HasSubstr("by kernels"));
      }
      EXPECT_EQ(steady(*comm, 40), "");
      if (gpus >= GetParam()) {
        EXPECT_EQ(stress(*comm, 40), "");
      }
    });
  for (auto& thread : threads) thread.join();
  unsetenv("TUTTI_P2P");
}
INSTANTIATE_TEST_SUITE_P(Of, Peers, testing::Values(2, 4));

}  // namespace
}  // namespace tutti::gpu
