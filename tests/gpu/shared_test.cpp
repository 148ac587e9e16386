// Collectives in a kernel on one GPU: the ranks are kernels on streams of their own, whose memory all can reach. And one that waits for a peer that never comes, until the abort flag is up.
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
    const std::vector<std::byte> zeros(SharedExchange::area_bytes(kHalf));
    for (int r = 0; r < n; ++r) {
      areas.push_back(std::make_unique<Memory>(zeros));
      streams.push_back(std::make_unique<Stream>());
    }
  }
  SharedExchange of(int rank, bool two_shot, const Memory& memory, std::size_t count) const {
    SharedExchange a;
    a.two_shot = two_shot;
    a.input = a.output = memory.at();
    a.until = int(streams.size());
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
        ASSERT_TRUE(gpu->exchange(ranks.streams[std::size_t(r)]->handle(),
                                    ranks.of(r, two_shot, *memory[std::size_t(r)], count))
                        .ok());
      ranks.meeting += SharedExchange::meetings(two_shot);
      ++ranks.number;
      std::vector<std::byte> expected(count * 4);
      kernels::reduce(DataType::f32, ReduceOp::sum, expected.data(), from, count);
      for (int r = 0; r < n; ++r)
        ASSERT_EQ(memory[std::size_t(r)]->read(count * 4), expected) << n << " ranks, call " << call << ", rank " << r;
    }
  }
}

// Blocks of any length at any address, from everybody to everybody.
TEST(Shared, CopiesAllBytesCallAfterCall) {
  std::string why;
  const auto gpu = device(&why);
  if (!gpu) GTEST_SKIP() << why;
  constexpr std::size_t kRanks = 3, kRow = 30'000;
  Ranks ranks(kRanks);
  std::mt19937_64 random(5);
  for (int call = 0; call < 50; ++call) {
    const std::size_t bytes = random() % (kRow - 4), shift = call % 2 ? random() % 32 : random() % 8 * 4;
    std::vector<std::vector<std::byte>> inputs;
    std::vector<std::unique_ptr<Memory>> in, out;
    for (std::size_t r = 0; r < kRanks; ++r) {
      inputs.emplace_back(kRanks * kRow + 64);
      for (std::byte& byte : inputs.back()) byte = std::byte(random());
      in.push_back(std::make_unique<Memory>(inputs.back()));
      out.push_back(std::make_unique<Memory>(std::vector<std::byte>(kRanks * kRow + 64)));
    }
    for (std::size_t r = 0; r < kRanks; ++r) {
      SharedExchange e = ranks.of(int(r), false, *in[r], bytes);
      e.reduces = false, e.type = DataType::u8;
      e.input = in[r]->at() + shift, e.output = out[r]->at() + 16;
      e.input_pitch = kRow, e.output_pitch = kRow - 4;
      e.rows = kRanks, e.row = int(r);
      ASSERT_TRUE(gpu->exchange(ranks.streams[r]->handle(), e).ok());
    }
    ++ranks.meeting, ++ranks.number;
    for (std::size_t r = 0; r < kRanks; ++r) {
      const std::vector<std::byte> got = out[r]->read(kRanks * kRow + 64);
      for (std::size_t from = 0; from < kRanks; ++from)
        ASSERT_TRUE(std::equal(got.begin() + std::ptrdiff_t(16 + from * (kRow - 4)), got.begin() + std::ptrdiff_t(16 + from * (kRow - 4) + bytes),
                               inputs[from].begin() + std::ptrdiff_t(shift + r * kRow)))
            << "call " << call << ", rank " << r << ", from " << from << ", " << bytes << " bytes";
    }
  }
}

TEST(Shared, EndsWhenThePeerNeverComes) {
  std::string why;
  const auto gpu = device(&why);
  if (!gpu) GTEST_SKIP() << why;
  Ranks ranks(2);
  const Memory memory(4000);
  ASSERT_TRUE(gpu->exchange(ranks.streams[0]->handle(), ranks.of(0, false, memory, 1000)).ok());
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
  ASSERT_TRUE(gpu->exchange(ranks.streams[0]->handle(), ranks.of(0, false, memory, 1000)).ok());
  ASSERT_TRUE(gpu->exchange(ranks.streams[1]->handle(), ranks.of(1, false, other, 999)).ok());
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
