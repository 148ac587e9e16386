// Ranks that are threads and share the one GPU: calls on streams follow each other and kernels on the stream, results
// are exact, sizes are drawn; two streams take turns. Ranks that are processes: gpu_ranks.
#include <gtest/gtest.h>
#include <tests/gpu/gpu.h>
#include <tests/gpu/stress.h>

#include <thread>

namespace tutti::gpu {
namespace {

class Ranks : public testing::TestWithParam<int> {};

TEST_P(Ranks, KeepTheOrderOfTheirStreams) {
  std::string why;
  if (!device(&why)) GTEST_SKIP() << why;
  const auto id = Communicator::make_unique_id();
  ASSERT_TRUE(id.ok()) << id.status().to_string();
  std::vector<std::thread> threads;
  for (int r = 0; r < GetParam(); ++r)
    threads.emplace_back([&, r] {
      Options options;
      options.job_key = "gpu";
      auto comm = Communicator::create(r, GetParam(), *id, options);
      ASSERT_TRUE(comm.ok()) << comm.status().to_string();
      EXPECT_EQ(stress(*comm, 40), "");
    });
  for (auto& thread : threads) thread.join();
}
INSTANTIATE_TEST_SUITE_P(Of, Ranks, testing::Values(1, 2, 4));

}  // namespace
}  // namespace tutti::gpu
