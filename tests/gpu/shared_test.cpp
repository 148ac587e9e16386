// One-shot and two-shot all_reduce on one GPU: the ranks are kernels on streams of their own, whose memory all can
// reach. And one that waits for a peer that never comes, until the abort flag is up.
#include <gtest/gtest.h>
#include <tests/gpu/gpu.h>
#include <tests/kernels/reference.h>

#include <atomic>

#include <kernels/cuda/cuda_device.h>
#include <kernels/cuda/shared_body.h>

namespace tutti::gpu {
namespace {

using kernels::cuda::kFlagWords;
using kernels::cuda::SharedArguments;

constexpr std::size_t kMost = 100'000;  // of f32

struct Ranks {
  explicit Ranks(int n) : words(static_cast<std::uint32_t*>(pinned(4096))) {
    const std::vector<std::byte> zeros(kFlagWords * 4);
    for (int r = 0; r < n; ++r) {
      exchange.push_back(std::make_unique<Memory>(2 * kMost * 4));
      flags.push_back(std::make_unique<Memory>(zeros));
      streams.push_back(std::make_unique<Stream>());
    }
  }
  SharedArguments of(int rank, const Memory& memory, std::size_t count) const {
    SharedArguments a;
    a.input = a.output = memory.at();
    a.output = memory.at();
    a.count = count;
    a.rank = rank, a.ranks = int(streams.size());
    for (std::size_t r = 0; r < streams.size(); ++r) {
      a.exchange[r] = exchange[r]->at() + calls % 2 * kMost * 4;
      a.flags[r] = reinterpret_cast<std::uint32_t*>(flags[r]->at());
    }
    a.meeting = meeting;
    a.abort = words, a.outcome = words + 1 + rank;
    return a;
  }
  std::uint32_t* words;  // abort, outcomes
  std::vector<std::unique_ptr<Memory>> exchange, flags;
  std::vector<std::unique_ptr<Stream>> streams;
  std::uint32_t meeting = 1, calls = 0;
};

TEST(Shared, ReducesInRankOrderCallAfterCall) {
  std::string why;
  if (!device(&why)) GTEST_SKIP() << why;
  for (const int n : {2, 3, 4, 8}) {
    Ranks ranks(n);
    std::mt19937 random(3);
    for (int call = 0; call < 50; ++call) {
      const bool two_shot = call % 2;
      const std::size_t count = 1 + random() % kMost;
      std::vector<std::vector<float>> inputs;
      std::vector<std::unique_ptr<Memory>> memory;
      std::vector<const std::byte*> from;
      for (int r = 0; r < n; ++r) {
        inputs.emplace_back(count);
        for (float& v : inputs.back()) v = std::normal_distribution<float>()(random);
        memory.push_back(std::make_unique<Memory>(std::as_bytes(std::span(inputs.back()))));
      }
      for (const auto& input : inputs) from.push_back(reinterpret_cast<const std::byte*>(input.data()));
      for (int r = 0; r < n; ++r)
        ASSERT_TRUE(kernels::cuda::all_reduce(ranks.streams[std::size_t(r)]->handle(), two_shot, DataType::f32,
                                              ReduceOp::sum, 4, ranks.of(r, *memory[std::size_t(r)], count))
                        .ok());
      ranks.meeting += kernels::cuda::meetings(two_shot);
      ++ranks.calls;
      std::vector<std::byte> expected(count * 4);
      kernels::reduce(DataType::f32, ReduceOp::sum, expected.data(), from, count);
      for (int r = 0; r < n; ++r)
        ASSERT_EQ(memory[std::size_t(r)]->read(count * 4), expected) << n << " ranks, call " << call << ", rank " << r;
    }
  }
}

TEST(Shared, EndsWhenThePeerNeverComes) {
  std::string why;
  if (!device(&why)) GTEST_SKIP() << why;
  Ranks ranks(2);
  const Memory memory(4000);
  ASSERT_TRUE(kernels::cuda::all_reduce(ranks.streams[0]->handle(), false, DataType::f32, ReduceOp::sum, 2,
                                        ranks.of(0, memory, 1000))
                  .ok());
  std::atomic_ref(ranks.words[0]).store(1);
  ranks.streams[0]->synchronize();
  EXPECT_EQ(ranks.words[1], 1u);
}

}  // namespace
}  // namespace tutti::gpu
