// reduce and scale: every type, operation and SIMD level against tests/kernels/reference.h, bit for bit; the bound on
// the error against exact sums; alignment, splits, aliasing and what lies around the output.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <tests/kernels/reference.h>

namespace tutti::kernels {
namespace {

using namespace reference;

#if defined(__SANITIZE_ADDRESS__)      // what is wrong with memory shows with few inputs; the sums are compared without
constexpr std::size_t kInputCounts[] = {1, 2, 3, 5, 8, 9};
constexpr Fill kFills[] = {Fill::wild};
#else
constexpr std::size_t kInputCounts[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 16, 27, 64};
constexpr Fill kFills[] = {Fill::moderate, Fill::wild};
#endif
constexpr std::size_t kCounts[] = {0, 1, 2, 7, 31, 64, 1000};
constexpr std::size_t kOffsets[] = {0, 1, 13};  // bytes off the allocation's alignment
constexpr std::byte kGuard{0xa5};

// n inputs of `count` elements and what must come out of them.
struct Example {
  DataType type;
  std::vector<std::vector<Bits>> inputs;
  std::vector<Bits> expected;

  Example(DataType of, ReduceOp op, Fill fill, std::size_t n, std::size_t count, std::uint32_t divide_by) : type(of) {
    std::mt19937_64 random(n * 1000 + std::size_t(type) * 10 + std::size_t(op));
    inputs.resize(n, std::vector<Bits>(count));
    for (auto& input : inputs)
      for (Bits& bits : input) bits = draw(type, fill, random);
    for (std::size_t i = 0; i < count; ++i) expected.push_back(reference::reduce(type, op, column(i), divide_by));
  }
  std::vector<Bits> column(std::size_t i) const {
    std::vector<Bits> values;
    for (const auto& input : inputs) values.push_back(input[i]);
    return values;
  }
};

// The example's inputs in memory, `offset` bytes off alignment, and an output between guards.
struct Memory {
  std::size_t offset, bytes;
  std::vector<std::vector<std::byte>> storage;
  std::vector<const std::byte*> inputs;
  std::vector<std::byte> output;

  Memory(const Example& example, std::size_t count, std::size_t off)
      : offset(off), bytes(count * size_of(example.type)), output(bytes + 2 * 64 + off, kGuard) {
    for (std::size_t k = 0; k < example.inputs.size(); ++k) {
      const std::size_t start = off == 0 ? 0 : (off + k) % 64;
      storage.emplace_back(start + bytes + 1);
      for (std::size_t i = 0; i < count; ++i) put(example.type, storage[k].data() + start, i, example.inputs[k][i]);
      inputs.push_back(storage[k].data() + start);
    }
  }
  std::byte* out() { return output.data() + 64 + offset; }
  bool guards_intact() {
    for (std::byte* at = output.data(); at != output.data() + output.size(); ++at)
      if ((at < out() || at >= out() + bytes) && *at != kGuard) return false;
    return true;
  }
};

std::vector<Bits> elements(DataType type, const std::byte* from, std::size_t count) {
  std::vector<Bits> result;
  for (std::size_t i = 0; i < count; ++i) result.push_back(get(type, from, i));
  return result;
}
std::vector<Bits> first(const std::vector<Bits>& of, std::size_t count) {
  return {of.begin(), of.begin() + std::ptrdiff_t(count)};
}

class Reduce : public testing::TestWithParam<std::tuple<DataType, ReduceOp>> {
 protected:
  DataType type() const { return std::get<0>(GetParam()); }
  ReduceOp op() const { return std::get<1>(GetParam()); }
  std::uint32_t divisor(std::size_t n) const { return op() == ReduceOp::avg ? std::uint32_t(n) : 1; }

  void check(const Example& example, std::uint32_t divide_by) {
    for (const SimdLevel level : levels()) {
      const LevelScope scope(level);
      for (const std::size_t count : kCounts) {
        for (const std::size_t offset : kOffsets) {
          Memory memory(example, count, offset);
          kernels::reduce(type(), op(), memory.out(), memory.inputs, count, {divide_by});
          ASSERT_EQ(elements(type(), memory.out(), count), first(example.expected, count))
              << kernels::name_of(level) << ", " << memory.inputs.size() << " inputs, " << count << " elements, offset "
              << offset;
          ASSERT_TRUE(memory.guards_intact());
        }
      }
    }
  }
};

TEST_P(Reduce, IsTheTreeOfTheReference) {
  for (const std::size_t n : kInputCounts)
    for (const Fill fill : kFills)
      check(Example(type(), op(), fill, n, 1000, divisor(n)), divisor(n));
}

TEST_P(Reduce, DividesByAnyNumber) {
  for (const std::uint32_t divide_by : {2u, 3u, 7u, 64u, 128u, 256u, 1000u, 0x10000u, 0x80000000u, 0x80000001u, 0xffffffffu})
    for (const std::size_t n : {std::size_t(2), std::size_t(5)})
      check(Example(type(), op(), Fill::wild, n, 1000, divide_by), divide_by);
}

TEST_P(Reduce, StripsAndSplitsDoNotShow) {
  constexpr std::size_t count = 9001;  // several strips of every type
  const Example example(type(), op(), Fill::wild, 13, count, divisor(13));
  std::mt19937_64 random(7);
  for (const SimdLevel level : levels()) {
    const LevelScope scope(level);
    Memory memory(example, count, 3);
    for (std::size_t begin = 0, end; begin < count; begin = end) {
      end = std::min<std::size_t>(count, begin + 1 + random() % 3000);
      std::vector<const std::byte*> inputs = memory.inputs;
      for (auto& input : inputs) input += begin * size_of(type());
      kernels::reduce(type(), op(), memory.out() + begin * size_of(type()), inputs, end - begin, {divisor(13)});
    }
    EXPECT_EQ(elements(type(), memory.out(), count), example.expected) << kernels::name_of(level);
    Memory whole(example, count, 0);
    kernels::reduce(type(), op(), whole.out(), whole.inputs, count, {divisor(13)});
    EXPECT_EQ(elements(type(), whole.out(), count), example.expected) << kernels::name_of(level);
    EXPECT_TRUE(whole.guards_intact());
  }
}

TEST_P(Reduce, OutputMayBeAnyInput) {
  constexpr std::size_t count = 2500;
  for (const std::size_t n : {std::size_t(1), std::size_t(2), std::size_t(4), std::size_t(8), std::size_t(11)}) {
    const Example example(type(), op(), Fill::wild, n, count, divisor(n));
    for (const SimdLevel level : levels()) {
      const LevelScope scope(level);
      for (const std::size_t target : {std::size_t(0), n / 2, n - 1}) {
        Memory memory(example, count, 1);
        std::byte* out = const_cast<std::byte*>(memory.inputs[target]);
        kernels::reduce(type(), op(), out, memory.inputs, count, {divisor(n)});
        ASSERT_EQ(elements(type(), out, count), example.expected)
            << kernels::name_of(level) << ", " << n << ", " << target;
        for (std::size_t k = 0; k < n; ++k)  // the other inputs stay
          if (k != target) {
            ASSERT_EQ(elements(type(), memory.inputs[k], count), example.inputs[k]);
          }
      }
    }
  }
}

// |result - exact sum| <= ceil(log2 n) * u * sum|x| + half a last place of the type, u the accumulation type's unit
// roundoff (Higham, Accuracy and Stability of Numerical Algorithms, 4.2: pairwise summation), doubled for the higher
// orders.
TEST_P(Reduce, SumsStayInsideThePairwiseBound) {
  if (!is_floating(type()) || op() != ReduceOp::sum) return;
  const Real unit = type() == DataType::f64 ? std::ldexp(Real(1), -53) : std::ldexp(Real(1), -24);
  for (const std::size_t n : kInputCounts) {
    const Example example(type(), op(), Fill::moderate, n, 1000, 1);
    Memory memory(example, 1000, 0);
    kernels::reduce(type(), op(), memory.out(), memory.inputs, 1000);
    for (std::size_t i = 0; i < 1000; ++i) {
      Real exact = 0, magnitudes = 0;
      for (const Bits bits : example.column(i))
        exact += decode(type(), bits), magnitudes += std::fabs(decode(type(), bits));
      const Real result = decode(type(), get(type(), memory.out(), i));
      const Layout l = layout_of(type());
      const Real half_place =
          std::ldexp(Real(0.5), std::max(result == 0 ? -10000 : std::ilogb(result), 1 - l.bias) - l.mantissa);
      const Real narrow_part = is_narrow_float(type()) ? half_place : 0;
      const Real clipped = std::min(std::max(exact, -l.largest), l.largest);
      ASSERT_LE(std::fabs(result - clipped), 2 * std::ceil(std::log2(Real(n))) * unit * magnitudes + narrow_part)
          << n << ", " << i;
    }
  }
}

std::string name(const testing::TestParamInfo<std::tuple<DataType, ReduceOp>>& info) {
  return std::string(tutti::name_of(std::get<0>(info.param))) + "_" +
         std::string(tutti::name_of(std::get<1>(info.param)));
}
INSTANTIATE_TEST_SUITE_P(All, Reduce, testing::Combine(testing::ValuesIn(kTypes), testing::ValuesIn(kOps)), name);

// Pairs of special values, by hand rather than by the reference.
TEST(ReduceSpecials, NansZerosAndInfinities) {
  struct Case {
    DataType type;
    ReduceOp op;
    Bits a, b, expected;
  };
  const Case cases[] = {
      {DataType::f32, ReduceOp::sum, 0xffc12345, 0x3f800000, 0x7fc00000},   // a negative NaN with a payload
      {DataType::f32, ReduceOp::sum, 0x7f800001, 0x3f800000, 0x7fc00000},   // a signalling one
      {DataType::f32, ReduceOp::sum, 0x7f800000, 0xff800000, 0x7fc00000},   // inf - inf
      {DataType::f32, ReduceOp::prod, 0x7f800000, 0x00000000, 0x7fc00000},  // inf * 0
      {DataType::f32, ReduceOp::sum, 0x80000000, 0x80000000, 0x80000000},   // -0 + -0
      {DataType::f32, ReduceOp::sum, 0x80000000, 0x00000000, 0x00000000},
      {DataType::f32, ReduceOp::sum, 0x00000001, 0x00000001, 0x00000002},  // denormals
      {DataType::f32, ReduceOp::min, 0x00000000, 0x80000000, 0x80000000},
      {DataType::f32, ReduceOp::min, 0x80000000, 0x00000000, 0x80000000},
      {DataType::f32, ReduceOp::max, 0x80000000, 0x00000000, 0x00000000},
      {DataType::f32, ReduceOp::max, 0x00000000, 0x80000000, 0x00000000},
      {DataType::f32, ReduceOp::max, 0xff800000, 0xffffffff, 0x7fc00000},
      {DataType::f32, ReduceOp::min, 0xffffffff, 0xff800000, 0x7fc00000},
      {DataType::f64, ReduceOp::max, 0x7ff0000000000001, 0x3ff0000000000000, 0x7ff8000000000000},
      {DataType::f64, ReduceOp::sum, 0x7ff0000000000000, 0xfff0000000000000, 0x7ff8000000000000},
      {DataType::f64, ReduceOp::min, 0x0000000000000000, 0x8000000000000000, 0x8000000000000000},
      {DataType::f16, ReduceOp::sum, 0x7c01, 0x3c00, 0x7e00},
      {DataType::f16, ReduceOp::sum, 0x7bff, 0x7bff, 0x7c00},  // 65504 + 65504 overflows
      {DataType::f16, ReduceOp::sum, 0x0001, 0x0001, 0x0002},
      {DataType::f16, ReduceOp::max, 0x8000, 0x0000, 0x0000},
      {DataType::bf16, ReduceOp::sum, 0xff81, 0x3f80, 0x7fc0},
      {DataType::bf16, ReduceOp::sum, 0x7f7f, 0x7f7f, 0x7f80},
      {DataType::bf16, ReduceOp::sum, 0x3f80, 0x3b80, 0x3f80},  // 1 + 2^-8: a tie, to even
      {DataType::f8e4m3, ReduceOp::sum, 0x7e, 0x7e, 0x7e},      // 448 + 448 saturates
      {DataType::f8e4m3, ReduceOp::sum, 0xfe, 0xfe, 0xfe},
      {DataType::f8e4m3, ReduceOp::sum, 0xff, 0x38, 0x7f},
      {DataType::f8e4m3, ReduceOp::sum, 0x01, 0x01, 0x02},
      {DataType::f8e5m2, ReduceOp::sum, 0x7b, 0x7b, 0x7c},  // 57344 + 57344 overflows
      {DataType::f8e5m2, ReduceOp::prod, 0x7c, 0x80, 0x7e},
      {DataType::f8e5m2, ReduceOp::sum, 0xfd, 0x3c, 0x7e},
      {DataType::i8, ReduceOp::sum, 0x7f, 0x01, 0x80},  // wraps
      {DataType::i8, ReduceOp::min, 0x80, 0x7f, 0x80},
      {DataType::u8, ReduceOp::min, 0x80, 0x7f, 0x7f},
      {DataType::i32, ReduceOp::prod, 0x80000000, 0xffffffff, 0x80000000},
      {DataType::i64, ReduceOp::sum, 0x7fffffffffffffff, 1, 0x8000000000000000},
      {DataType::u64, ReduceOp::max, 0x8000000000000000, 1, 0x8000000000000000}};
  for (const SimdLevel level : levels()) {
    const LevelScope scope(level);
    for (const Case& c : cases) {
      for (const std::size_t count : {std::size_t(1), std::size_t(100)}) {
        std::vector<std::byte> a(count * 8), b(count * 8), out(count * 8);
        for (std::size_t i = 0; i < count; ++i) put(c.type, a.data(), i, c.a), put(c.type, b.data(), i, c.b);
        const std::byte* inputs[] = {a.data(), b.data()};
        kernels::reduce(c.type, c.op, out.data(), inputs, count);
        EXPECT_THAT(elements(c.type, out.data(), count), testing::Each(c.expected))
            << kernels::name_of(level) << " " << tutti::name_of(c.type) << " " << tutti::name_of(c.op) << std::hex
            << " " << c.a << " " << c.b;
      }
    }
  }
}

// Rounding once: 1 + 2^-11 in f16 is a tie to even twice over if done step by step, 1 + 2^-10 when partial sums are
// f32.
TEST(ReduceSpecials, NarrowFloatsRoundOnceAtTheEnd) {
  for (const SimdLevel level : levels()) {
    const LevelScope scope(level);
    const Bits values[] = {0x3c00, 0x1000, 0x1000};  // 1, 2^-11, 2^-11 as ((1 + 2^-11) + 2^-11)
    std::byte memory[3][2], out[2];
    const std::byte* inputs[] = {memory[0], memory[1], memory[2]};
    for (int k = 0; k < 3; ++k) put(DataType::f16, memory[k], 0, values[k]);
    kernels::reduce(DataType::f16, ReduceOp::sum, out, inputs, 1);
    EXPECT_EQ(get(DataType::f16, out, 0), 0x3c01u) << kernels::name_of(level);
  }
}

TEST(Scale, IsTheRoundedFactorTimesTheElement) {
  constexpr std::size_t count = 1003;
  for (const DataType type : kTypes) {
    for (const double factor : {1.0, 0.5, -3.75, 1.0 / 3, 1e-6, 300.7, 1e30, 0.0, std::nan("")}) {
      std::mt19937_64 random(11);
      std::vector<Bits> expected;
      std::vector<std::byte> in(count * size_of(type) + 1), out(count * size_of(type) + 1);
      const Bits rounded = encode(type, Real(factor));
      for (std::size_t i = 0; i < count; ++i) {
        const Bits bits = draw(type, Fill::wild, random);
        put(type, in.data() + 1, i, bits);
        const Real a = decode(type, rounded), b = decode(type, bits);
        if (!is_floating(type))
          expected.push_back((rounded * bits) & mask_of(type));
        else if (type == DataType::f64)
          expected.push_back(encode(type, Real(double(a) * double(b))));
        else
          expected.push_back(encode(type, Real(float(a) * float(b))));
      }
      for (const SimdLevel level : levels()) {
        const LevelScope scope(level);
        kernels::scale(type, out.data() + 1, in.data() + 1, count, factor);
        ASSERT_EQ(elements(type, out.data() + 1, count), expected)
            << tutti::name_of(type) << " " << factor << kernels::name_of(level);
        std::vector<std::byte> same = in;
        kernels::scale(type, same.data() + 1, same.data() + 1, count, factor);
        ASSERT_EQ(elements(type, same.data() + 1, count), expected) << "in place " << tutti::name_of(type);
      }
    }
  }
}

TEST(Levels, ScalarIsAlwaysThereAndTheBestIsInUse) {
  ASSERT_FALSE(simd_levels().empty());
  EXPECT_EQ(simd_levels().front(), SimdLevel::scalar);
  EXPECT_EQ(simd_level(), simd_levels().back());
#if defined(__x86_64__)
  EXPECT_EQ(__builtin_cpu_supports("avx2") != 0, testing::Value(levels(), testing::Contains(SimdLevel::avx2)));
  EXPECT_FALSE(set_simd_level(SimdLevel::neon));
#elif defined(__aarch64__)
  EXPECT_TRUE(testing::Value(levels(), testing::Contains(SimdLevel::neon)));
  EXPECT_FALSE(set_simd_level(SimdLevel::avx2));
#endif
  for (const SimdLevel level : levels()) {
    const LevelScope scope(level);
    EXPECT_EQ(simd_level(), level);
  }
  EXPECT_EQ(simd_level(), simd_levels().back());
}

}  // namespace
}  // namespace tutti::kernels
