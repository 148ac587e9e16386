// Collectives in a kernel on an emulated GPU: ranks are grids that run at once in orders drawn from a seed, on one memory as
// peer-mapped ranks are. Reductions bit for bit in rank order, copies of any bytes at any address; call after call on two
// halves; a peer that never comes, or dies between its meetings; and waits that are left out must show.
#include <gtest/gtest.h>
#include <tests/cuda/bodies.h>
#include <tests/kernels/reference.h>

#include <cstring>

#include <kernels/cast.h>

namespace tutti::emulation {
namespace {

using namespace kernels::reference;

// Ranks with their exchange buffers and flags, and the calls that they make.
class Ranks {
 public:
  Ranks(int ranks, DataType type, ReduceOp op, std::size_t most, std::uint64_t seed)
      : ranks_(std::size_t(ranks)), type_(type), op_(op), half_((most * size_of(type) + 15) / 16), random_(seed), words_(std::size_t(ranks)) {
    for (std::size_t r = 0; r < ranks_; ++r) areas_.emplace_back(SharedExchange::area_bytes(half_ * 16) / 16);
  }

  // One call by all ranks but `absent`; what came out is compared with the host's. Returns whether it is right.
  struct Plan {
    bool two_shot = false, in_place = false;
    std::size_t count = 0;
    Grid grid{2, 16};
    int absent = -1, other = -1;  // ranks that make no call, or another one
    std::uint64_t abort_after = ~std::uint64_t(0);
    bool ignores_sync = false, ignores_acquire = false;
  };
  bool call(const Plan& plan) {
    draw_inputs(plan.count);
    const std::vector<Bits> expected = by_host(plan.count);
    Emulator emulator(random_());
    emulator.ignores_sync = plan.ignores_sync, emulator.ignores_acquire = plan.ignores_acquire;
    std::vector<kernels::cuda::SharedArguments> arguments;
    for (std::size_t r = 0; r < ranks_; ++r)
      arguments.push_back(kernels::cuda::arguments_of(of_rank(r, plan), kernels::rounded_factor(type_, factor(r))));
    for (std::size_t r = 0; r < ranks_; ++r)
      if (int(r) != plan.absent) add_exchange(emulator, of_rank(r, plan), plan.grid, arguments[r]);
    emulator.run(plan.abort_after, [this] {
      for (SharedWords& words : words_) words.abort = 1;
    });
    meeting_ += SharedExchange::meetings(plan.two_shot);
    ++number_;
    bool right = true;
    for (std::size_t r = 0; r < ranks_; ++r)
      right = right && elements(plan.in_place ? inputs_[r] : outputs_[r], plan.count) == expected;
    return right;
  }
  std::vector<std::uint32_t> outcomes() const {
    std::vector<std::uint32_t> all;
    for (const SharedWords& words : words_) all.push_back(words.outcome);
    return all;
  }
  const SharedWords& words(int rank) const { return words_[std::size_t(rank)]; }

 private:
  struct alignas(16) Unit {
    std::byte bytes[16];
  };
  static std::byte* bytes(std::vector<Unit>& of) { return reinterpret_cast<std::byte*>(of.data()); }

  void draw_inputs(std::size_t count) {
    inputs_.assign(ranks_, std::vector<Unit>(count * size_of(type_) / 16 + 1));
    outputs_ = inputs_;
    for (SharedWords& words : words_) words.outcome = 0;
    for (auto& input : inputs_)
      for (std::size_t i = 0; i < count; ++i) put(type_, bytes(input), i, draw(type_, Fill::moderate, random_));
  }
  std::vector<Bits> elements(std::vector<Unit>& of, std::size_t count) {
    std::vector<Bits> values;
    for (std::size_t i = 0; i < count; ++i) values.push_back(get(type_, bytes(of), i));
    return values;
  }
  static double factor(std::size_t rank) { return 1.5 - 0.4 * double(rank); }

  std::vector<Bits> by_host(std::size_t count) {
    std::vector<std::vector<Unit>> scaled = inputs_;
    std::vector<const std::byte*> from;
    for (std::size_t r = 0; r < ranks_; ++r) {
      if (op_ == ReduceOp::premul_sum) kernels::scale(type_, bytes(scaled[r]), bytes(inputs_[r]), count, factor(r));
      from.push_back(bytes(scaled[r]));
    }
    std::vector<Unit> out(count * size_of(type_) / 16 + 1);
    kernels::reduce(type_, op_, bytes(out), from, count, {op_ == ReduceOp::avg ? std::uint32_t(ranks_) : 1});
    return elements(out, count);
  }
  SharedExchange of_rank(std::size_t rank, const Plan& plan) {
    SharedExchange r;
    r.two_shot = plan.two_shot;
    r.type = type_, r.op = op_;
    r.input = bytes(inputs_[rank]);
    r.output = bytes(plan.in_place ? inputs_[rank] : outputs_[rank]);
    r.count = plan.count;
    r.rank = int(rank), r.ranks = r.until = int(ranks_);
    for (std::size_t k = 0; k < ranks_; ++k) r.areas[k] = bytes(areas_[k]);
    r.half = half_ * 16;
    r.number = number_, r.meeting = meeting_;
    r.call = int(rank) == plan.other ? 0x700000002 : 0x900000001;
    r.words = &words_[rank];
    return r;
  }

  std::size_t ranks_;
  DataType type_;
  ReduceOp op_;
  std::size_t half_;  // of an exchange buffer, in units
  std::mt19937_64 random_;
  std::vector<std::vector<Unit>> areas_, inputs_, outputs_;
  std::vector<SharedWords> words_;
  std::uint32_t meeting_ = 1, number_ = 1;
};

class Shared : public testing::TestWithParam<std::tuple<DataType, ReduceOp>> {};

TEST_P(Shared, ReducesInRankOrder) {
  const auto [type, op] = GetParam();
  for (const int ranks : {2, 3, 8})
    for (const bool two_shot : {false, true}) {
      Ranks all(ranks, type, op, 200, 11 + std::uint64_t(ranks));
      EXPECT_TRUE(all.call({.two_shot = two_shot, .count = 200, .grid = {2, 8}}))
          << ranks << " ranks, two-shot " << two_shot;
    }
}
INSTANTIATE_TEST_SUITE_P(All, Shared, testing::Combine(testing::ValuesIn(kTypes), testing::ValuesIn(kOps)),
                         [](const auto& test) {
                           return std::string(name_of(std::get<0>(test.param))) + "_" +
                                  std::string(name_of(std::get<1>(test.param)));
                         });

TEST(SharedCalls, FollowEachOtherOnTwoHalves) {
  for (std::uint64_t seed = 1; seed <= 5; ++seed)
    for (const int ranks : {1, 2, 4, 7}) {
      Ranks all(ranks, DataType::f32, ReduceOp::sum, 500, seed);
      std::mt19937_64 random(seed);
      for (int i = 0; i < 6; ++i) {
        const Ranks::Plan plan{.two_shot = random() % 2 == 0,
                               .in_place = random() % 2 == 0,
                               .count = random() % 501,
                               .grid = {1 + int(random() % 3), 8}};
        ASSERT_TRUE(all.call(plan)) << "seed " << seed << ", " << ranks << " ranks, call " << i << ", " << plan.count
                                    << " elements";
      }
    }
}

TEST(SharedCalls, EndWhenThePeerNeverComes) {
  for (const bool two_shot : {false, true})
    for (const int absent : {0, 2}) {
      Ranks all(3, DataType::f32, ReduceOp::sum, 100, 3);
      EXPECT_TRUE(all.call({.two_shot = two_shot, .count = 100}));
      EXPECT_FALSE(all.call({.two_shot = two_shot, .count = 100, .absent = absent, .abort_after = 3000}));
      for (int r = 0; r < 3; ++r) EXPECT_EQ(all.outcomes()[std::size_t(r)], r == absent ? 0u : 1u) << r;
    }
}

// All but one call alike: everybody hears of another call, and of which; nobody waits for an abort.
TEST(SharedCalls, FindOutThatAPeerMakesAnotherCall) {
  for (const bool two_shot : {false, true})
    for (std::uint64_t seed = 1; seed <= 10; ++seed) {
      Ranks all(3, DataType::f32, ReduceOp::sum, 100, seed);
      EXPECT_TRUE(all.call({.two_shot = two_shot, .count = 100}));
      EXPECT_FALSE(all.call({.two_shot = two_shot, .count = 100, .grid = {1, 8}, .other = 1}));
      for (const int r : {0, 2}) {
        EXPECT_EQ(all.words(r).outcome, SharedWords::kMismatch) << seed;
        EXPECT_EQ(all.words(r).peer, 1u);
        EXPECT_EQ(all.words(r).call[0], 2u);
        EXPECT_EQ(all.words(r).call[1], 7u);
        EXPECT_EQ(all.words(r).begun, 2u);
      }
      EXPECT_EQ(all.words(1).outcome, SharedWords::kMismatch);
    }
}

// The flag is up before or between the meetings, at any turn: all end, and who says nothing of it has the right result.
TEST(SharedCalls, EndWheneverTheyAreAborted) {
  int aborted = 0, whole = 0;
  for (std::uint64_t turn = 0; turn < 1500; turn += 25)
    for (const bool two_shot : {false, true}) {
      Ranks all(3, DataType::f32, ReduceOp::sum, 64, turn);
      const bool right = all.call({.two_shot = two_shot, .count = 64, .grid = {1, 4}, .abort_after = turn});
      const bool said = all.outcomes() != std::vector<std::uint32_t>(3, 0);
      EXPECT_TRUE(right || said) << "turn " << turn;
      ++(said ? aborted : whole);
    }
  EXPECT_GT(aborted, 0);
  EXPECT_GT(whole, 0);
}

// Rows of bytes, of any length and at any address: what each rank takes of whom, as collectives have it.
struct Copying {
  const char* name;
  bool all_put = true, dealt = false;  // all ranks put rows in, or rank 1 alone; one row for each rank, or one
  int takers = -1;                     // who takes; -1: all
};
class Copies : public testing::TestWithParam<Copying> {};

TEST_P(Copies, AreAllBytesOfTheRows) {
  const Copying how = GetParam();
  constexpr int kRanks = 3, kRoot = 1;
  constexpr std::size_t kHalf = 2048;
  alignas(16) static std::byte areas[kRanks][2 * kHalf + SharedExchange::kFlagBytes];
  std::memset(areas, 0, sizeof areas);
  SharedWords words[kRanks];
  std::mt19937_64 random(5);
  for (std::uint32_t number = 1; number <= 24; ++number) {
    const std::size_t bytes = random() % 500, shift = random() % 3 * 4 + (random() % 4 == 0), out_shift = random() % 2 ? shift : random() % 16;
    alignas(16) std::byte in[kRanks][3 * 700], out[kRanks][3 * 700];
    for (auto& one : in)
      for (auto& byte : one) byte = std::byte(random());
    std::memset(out, 0xee, sizeof out);
    Emulator emulator(random());
    std::vector<SharedExchange> exchanges;
    std::vector<kernels::cuda::SharedArguments> arguments;
    const bool from_root = !how.all_put;
    for (int r = 0; r < kRanks; ++r) {
      SharedExchange e;
      e.reduces = false, e.type = DataType::u8, e.count = bytes;
      e.input = in[r] + shift, e.output = out[r] + out_shift, e.input_pitch = 510, e.output_pitch = 555;
      e.rows = how.all_put || r == kRoot ? (how.dealt ? kRanks : 1) : 0;
      e.row = how.dealt ? r : 0;
      if (how.takers < 0 || how.takers == r) e.from = from_root ? kRoot : 0, e.until = from_root ? kRoot + 1 : kRanks;
      e.rank = r, e.ranks = kRanks, e.half = kHalf, e.number = e.meeting = number, e.call = 7, e.words = &words[r];
      for (int k = 0; k < kRanks; ++k) e.areas[k] = areas[k];
      exchanges.push_back(e);
      arguments.push_back(kernels::cuda::arguments_of(e, 0));
    }
    for (std::size_t r = 0; r < kRanks; ++r) add_exchange(emulator, exchanges[r], {2, 8}, arguments[r]);
    emulator.run();
    for (int r = 0; r < kRanks; ++r) {
      std::vector<std::byte> expected(sizeof out[r], std::byte(0xee));
      for (int from = exchanges[std::size_t(r)].from, at = 0; from < exchanges[std::size_t(r)].until; ++from, ++at)
        std::copy_n(in[from] + shift + (how.dealt ? r : 0) * 510, bytes, expected.begin() + std::ptrdiff_t(out_shift) + at * 555);
      EXPECT_TRUE(std::equal(expected.begin(), expected.end(), out[r])) << "call " << number << ", rank " << r << ", " << bytes << " bytes at " << shift << " to " << out_shift;
    }
  }
}
INSTANTIATE_TEST_SUITE_P(Of, Copies,
                         testing::Values(Copying{"all_gather"}, Copying{"gather", true, false, 1}, Copying{"broadcast", false}, Copying{"scatter", false, true},
                                         Copying{"all_to_all", true, true}),
                         [](const auto& test) { return std::string(test.param.name); });

TEST(SharedCalls, PlantedMissingWaitsShow) {
  for (const bool two_shot : {false, true}) {
    int without_flags = 0, without_sync = 0;
    for (std::uint64_t seed = 1; seed <= 20; ++seed) {
      const auto fails = [&](Ranks::Plan plan) {
        plan.two_shot = two_shot, plan.count = 300, plan.grid = {2, 16};
        return !Ranks(4, DataType::f32, ReduceOp::sum, 300, seed).call(plan);
      };
      without_flags += fails({.ignores_acquire = true});
      without_sync += fails({.ignores_sync = true});
    }
    EXPECT_GT(without_flags, 10) << two_shot;
    EXPECT_GT(without_sync, 10) << two_shot;
  }
}

}  // namespace
}  // namespace tutti::emulation
