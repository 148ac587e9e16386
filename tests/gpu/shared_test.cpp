// One-shot and two-shot all_reduce on one GPU: the ranks are kernels on streams of their own, whose memory all can
// reach. And one that waits for a peer that never comes, until the abort flag is up.
#include <gtest/gtest.h>
#include <tests/gpu/gpu.h>
#include <tests/kernels/reference.h>

#include <atomic>
#include <thread>

#include <kernels/kernels.h>

namespace tutti::gpu {
namespace {

constexpr std::size_t kMost = 100'000;  // of f32
constexpr std::size_t kHalf = kMost * 4;

struct Ranks {
  explicit Ranks(int n) : words(static_cast<SharedWords*>(pinned(4096))) {
    const std::vector<std::byte> zeros(SharedReduction::area_bytes(kHalf));
    for (int r = 0; r < n; ++r) {
      areas.push_back(std::make_unique<Memory>(zeros));
      streams.push_back(std::make_unique<Stream>());
    }
  }
  SharedReduction of(int rank, bool two_shot, const Memory& memory, std::size_t count) const {
    SharedReduction a;
    a.two_shot = two_shot;
    a.input = a.output = memory.at();
    a.count = count;
    a.rank = rank, a.ranks = int(streams.size()), a.blocks = 4;
    for (std::size_t r = 0; r < streams.size(); ++r) a.areas[r] = areas[r]->at();
    a.half = kHalf;
    a.number = number, a.meeting = meeting, a.call = count;
    a.words = words + rank;
    return a;
  }
  SharedWords* words;
  std::vector<std::unique_ptr<Memory>> areas;
  std::vector<std::unique_ptr<Stream>> streams;
  std::uint32_t meeting = 1, number = 1;
};

TEST(Shared, ReducesInRankOrderCallAfterCall) {
  std::string why;
  const auto gpu = device(&why);
  if (!gpu) GTEST_SKIP() << why;
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
        ASSERT_TRUE(gpu->all_reduce(ranks.streams[std::size_t(r)]->handle(),
                                    ranks.of(r, two_shot, *memory[std::size_t(r)], count))
                        .ok());
      ranks.meeting += SharedReduction::meetings(two_shot);
      ++ranks.number;
      std::vector<std::byte> expected(count * 4);
      kernels::reduce(DataType::f32, ReduceOp::sum, expected.data(), from, count);
      for (int r = 0; r < n; ++r)
        ASSERT_EQ(memory[std::size_t(r)]->read(count * 4), expected) << n << " ranks, call " << call << ", rank " << r;
    }
  }
}

TEST(Shared, EndsWhenThePeerNeverComes) {
  std::string why;
  const auto gpu = device(&why);
  if (!gpu) GTEST_SKIP() << why;
  Ranks ranks(2);
  const Memory memory(4000);
  ASSERT_TRUE(gpu->all_reduce(ranks.streams[0]->handle(), ranks.of(0, false, memory, 1000)).ok());
  std::atomic_ref(ranks.words[0].abort).store(1);
  ranks.streams[0]->synchronize();
  EXPECT_EQ(ranks.words[0].outcome, SharedWords::kAborted);
  EXPECT_EQ(ranks.words[0].begun, 1u);
}

TEST(Shared, FindsOutThatThePeerMakesAnotherCall) {
  std::string why;
  const auto gpu = device(&why);
  if (!gpu) GTEST_SKIP() << why;
  Ranks ranks(2);
  const Memory memory(4000), other(4000);
  ASSERT_TRUE(gpu->all_reduce(ranks.streams[0]->handle(), ranks.of(0, false, memory, 1000)).ok());
  ASSERT_TRUE(gpu->all_reduce(ranks.streams[1]->handle(), ranks.of(1, false, other, 999)).ok());
  for (std::size_t r = 0; r < 2; ++r) {
    for (SharedWords& words = ranks.words[r]; std::atomic_ref(words.outcome).load() == 0;) std::this_thread::yield();
    EXPECT_EQ(ranks.words[r].outcome, SharedWords::kMismatch);
    EXPECT_EQ(ranks.words[r].call[0], r == 0 ? 999u : 1000u);
    std::atomic_ref(ranks.words[r].abort).store(1);  // blocks that the other has not
    ranks.streams[r]->synchronize();
  }
}

}  // namespace
}  // namespace tutti::gpu
