// Inputs: a reduction in any order gives the expected bits; random ones stay within the bound; damage shows.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <set>

#include "perf/driver/check.h"
#include "perf/driver/inputs.h"
#include "perf/driver/number.h"

namespace tutti::perf {
namespace {

constexpr std::size_t kCount = 257;

// What a library may do: combine pairs in any order, rounding each partial result to the type.
std::uint64_t combined(DataType type, ReduceOp op, std::uint64_t a, std::uint64_t b) {
  if (is_floating(type)) {
    const double x = decode(type, a), y = decode(type, b);
    switch (op) {
      case ReduceOp::prod: return encode(type, x * y);
      case ReduceOp::min: return x < y ? a : b;
      case ReduceOp::max: return x > y ? a : b;
      default: return encode(type, x + y);
    }
  }
  const bool less = is_signed_integer(type) ? sign_extend(type, a) < sign_extend(type, b) : a < b;
  std::uint64_t value = a + b;
  if (op == ReduceOp::prod) value = a * b;
  if (op == ReduceOp::min) value = less ? a : b;
  if (op == ReduceOp::max) value = less ? b : a;
  return size_of(type) == 8 ? value : value & ((1ull << (8 * size_of(type))) - 1);
}
std::uint64_t scaled(DataType type, std::uint64_t bits, double factor) {
  if (is_floating(type)) return encode(type, decode(type, bits) * factor);
  return combined(type, ReduceOp::prod, bits, std::uint64_t(factor));
}
std::uint64_t divided(DataType type, std::uint64_t bits, int ranks) {
  if (is_floating(type)) return encode(type, decode(type, bits) / ranks);
  std::byte bytes[8];
  store_bits(type,
             is_signed_integer(type) ? std::uint64_t(sign_extend(type, bits) / ranks) : bits / std::uint64_t(ranks),
             bytes);
  return load_bits(type, bytes);
}

struct Case {
  DataType type;
  ReduceOp op;
  int ranks;
};
std::vector<Case> cases() {
  std::vector<Case> all;
  for (int type = 0; type < kDataTypeCount; ++type)
    for (int op = 0; op < kReduceOpCount; ++op)
      for (int ranks : {1, 2, 3, 5, 8, 17, 64}) all.push_back({DataType(type), ReduceOp(op), ranks});
  return all;
}

// The inputs of all ranks, reduced in a random tree of pairs.
std::vector<std::byte> reduced_somehow(const Recipe& recipe, std::uint64_t seed) {
  const DataType type = recipe.type;
  const std::size_t size = size_of(type);
  std::mt19937_64 random(seed);
  std::vector<std::vector<std::byte>> inputs;
  for (int r = 0; r < recipe.rank_count; ++r) inputs.push_back(make_inputs(recipe, r, kCount));
  std::vector<std::byte> result(kCount * size);
  for (std::size_t i = 0; i < kCount; ++i) {
    std::vector<std::uint64_t> values;
    for (int r = 0; r < recipe.rank_count; ++r) {
      const std::uint64_t bits = load_bits(type, &inputs[std::size_t(r)][i * size]);
      values.push_back(recipe.op == ReduceOp::premul_sum ? scaled(type, bits, factor_of(r)) : bits);
    }
    while (values.size() > 1) {
      std::shuffle(values.begin(), values.end(), random);
      const std::uint64_t last = values.back();
      values.pop_back();
      values.back() = combined(type, *recipe.op, values.back(), last);
    }
    store_bits(type, recipe.op == ReduceOp::avg ? divided(type, values[0], recipe.rank_count) : values[0],
               &result[i * size]);
  }
  return result;
}

TEST(Inputs, ExactOnesGiveTheSameBitsInAnyOrder) {
  for (const Case& c : cases()) {
    const Recipe recipe{.type = c.type, .op = c.op, .rank_count = c.ranks, .seed = 5};
    const Expected expected = make_expected(recipe, kCount);
    for (std::uint64_t order : {1, 2})
      EXPECT_EQ(reduced_somehow(recipe, order), expected.bits)
          << name_of(c.type) << ' ' << name_of(c.op) << ' ' << c.ranks;
  }
}
TEST(Inputs, EveryRankMatters) {  // leaving one rank out of a sum must show
  for (int type = 0; type < kDataTypeCount; ++type)
    for (int ranks : {2, 5, 64}) {
      const Recipe recipe{.type = DataType(type), .op = ReduceOp::sum, .rank_count = ranks};
      for (int r = 0; r < ranks; ++r) {
        const std::vector<std::byte> bytes = make_inputs(recipe, r, kCount);
        EXPECT_GT(std::count_if(bytes.begin(), bytes.end(), [](std::byte b) { return b != std::byte{0}; }), 0);
        if (r == 0) continue;
        EXPECT_NE(bytes, make_inputs(recipe, r - 1, kCount));
      }
    }
}
TEST(Inputs, RandomOnesStayWithinTheBoundAndUseIt) {
  for (DataType type :
       {DataType::f16, DataType::bf16, DataType::f32, DataType::f64, DataType::f8e4m3, DataType::f8e5m2})
    for (ReduceOp op : {ReduceOp::sum, ReduceOp::prod, ReduceOp::avg, ReduceOp::premul_sum})
      for (int ranks : {2, 3, 8, 64}) {
        const Recipe recipe{.type = type, .op = op, .rank_count = ranks, .check = Check::random, .seed = 3};
        Checker checker(recipe);
        const Verdict verdict = checker.compare(reduced_somehow(recipe, 9).data(), kReduced, 0, kCount);
        EXPECT_EQ(verdict.wrong, 0u) << name_of(type) << ' ' << name_of(op) << ' ' << ranks;
        EXPECT_LE(verdict.error_over_bound, 1.0);
        EXPECT_GT(verdict.error_over_bound, 0.0) << name_of(type) << " " << name_of(op) << " " << ranks;
      }
}
TEST(Inputs, ARandomSumWithoutOneRankIsOutOfBounds) {
  const Recipe recipe{.type = DataType::f32, .op = ReduceOp::sum, .rank_count = 4, .check = Check::random};
  Recipe fewer = recipe;
  fewer.rank_count = 3;
  Checker checker(recipe);
  EXPECT_GT(checker.compare(reduced_somehow(fewer, 1).data(), kReduced, 0, kCount).wrong, kCount * 9 / 10);
}
TEST(Inputs, NaNIsOutOfBounds) {
  const Recipe recipe{.type = DataType::f32, .op = ReduceOp::sum, .rank_count = 2, .check = Check::random};
  std::vector<std::byte> bytes = reduced_somehow(recipe, 1);
  store_bits(DataType::f32, 0x7fc00000, &bytes[4 * 10]);
  const Verdict verdict = Checker(recipe).compare(bytes.data(), kReduced, 0, kCount);
  EXPECT_EQ(verdict.wrong, 1u);
  EXPECT_GT(verdict.error_over_bound, 1.0);
}
TEST(Check, FillAndCompareAcrossPeriods) {
  const Recipe recipe{.type = DataType::u8, .rank_count = 2};
  const std::size_t count = 3 * kPeriod + 11, from = kPeriod - 5;
  std::vector<std::byte> bytes(count);
  Checker checker(recipe);
  checker.fill(bytes.data(), 1, from, count);
  EXPECT_EQ(checker.compare(bytes.data(), 1, from, count).wrong, 0u);
  EXPECT_GT(checker.compare(bytes.data(), 0, from, count).wrong, count / 2);         // another rank's data
  EXPECT_GT(checker.compare(bytes.data(), 1, from + 4096, count).wrong, count / 2);  // moved by a chunk
  for (std::size_t at : {std::size_t(0), kPeriod, count - 1}) bytes[at] ^= std::byte{1};
  EXPECT_EQ(checker.compare(bytes.data(), 1, from, count).wrong, 3u);
}

}  // namespace
}  // namespace tutti::perf
