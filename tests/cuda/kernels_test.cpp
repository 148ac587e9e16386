// The bodies of kernels/cuda on an emulated GPU: every type and operation, one to eight inputs, bit for bit against the
// reference and against the host's kernels; alignment, grids, aliasing, factors, casts.
#include <gtest/gtest.h>
#include <tests/cuda/bodies.h>
#include <tests/kernels/reference.h>

#include <kernels/cast.h>

namespace tutti::emulation {
namespace {

using namespace kernels::reference;
using Bytes = std::vector<std::byte>;

constexpr std::byte kGuard{0xa5};
constexpr std::size_t kMargin = 64;
constexpr Grid kGrids[] = {{1, 1}, {1, 32}, {3, 16}};

// n buffers of `count` elements, each `offset[k]` bytes behind a multiple of 16, and an output between guards.
struct Buffers {
  DataType type;
  std::size_t count;
  std::vector<Bytes> storage;
  std::vector<const std::byte*> inputs;
  Bytes output;
  std::byte* out;

  Buffers(DataType of, std::size_t n, std::size_t elements, Fill fill, std::uint64_t seed, std::size_t offset,
          bool alike)
      : type(of), count(elements), output(elements * size_of(of) + 2 * kMargin + 32, kGuard) {
    std::mt19937_64 random(seed);
    for (std::size_t k = 0; k < n; ++k) {
      storage.emplace_back(elements * size_of(of) + 64);
      std::byte* at = aligned(storage.back().data()) + (alike ? offset : (offset + k * size_of(of)) % 16);
      for (std::size_t i = 0; i < elements; ++i) put(of, at, i, draw(of, fill, random));
      inputs.push_back(at);
    }
    out = aligned(output.data() + kMargin) + offset;
  }
  static std::byte* aligned(std::byte* at) { return at + (16 - std::uintptr_t(at) % 16) % 16; }
  bool guards_intact() const {
    for (const std::byte* at = output.data(); at != output.data() + output.size(); ++at)
      if ((at < out || at >= out + count * size_of(type)) && *at != kGuard) return false;
    return true;
  }
  std::vector<Bits> result() const { return elements_of(type, out, count); }
  static std::vector<Bits> elements_of(DataType type, const std::byte* from, std::size_t count) {
    std::vector<Bits> values;
    for (std::size_t i = 0; i < count; ++i) values.push_back(get(type, from, i));
    return values;
  }
};

class Kernels : public testing::TestWithParam<std::tuple<DataType, ReduceOp>> {
 protected:
  DataType type() const { return std::get<0>(GetParam()); }
  ReduceOp op() const { return std::get<1>(GetParam()); }

  ReduceArguments arguments(const Buffers& b) const {
    ReduceArguments a;
    a.out = b.out;
    a.n = int(b.inputs.size());
    a.count = b.count;
    for (std::size_t k = 0; k < b.inputs.size(); ++k) {
      a.inputs[k] = b.inputs[k];
      a.factors[k] = kernels::rounded_factor(type(), factor(k));
    }
    a.scaled = op() == ReduceOp::premul_sum;
    a.divide_by = op() == ReduceOp::avg ? std::uint32_t(a.n) : 1;
    return a;
  }
  static double factor(std::size_t k) { return 0.3 + double(k) * 1.7; }

  // By the host's kernels: scaled copies, then one pass.
  std::vector<Bits> on_host(const Buffers& b) const {
    std::vector<Bytes> copies;
    std::vector<const std::byte*> inputs;
    for (std::size_t k = 0; k < b.inputs.size(); ++k) {
      copies.emplace_back(b.count * size_of(type()));
      if (op() == ReduceOp::premul_sum)
        kernels::scale(type(), copies[k].data(), b.inputs[k], b.count, factor(k));
      else
        std::memcpy(copies[k].data(), b.inputs[k], copies[k].size());
      inputs.push_back(copies[k].data());
    }
    Bytes out(b.count * size_of(type()));
    kernels::reduce(type(), op(), out.data(), inputs, b.count,
                    {op() == ReduceOp::avg ? std::uint32_t(inputs.size()) : 1});
    return Buffers::elements_of(type(), out.data(), b.count);
  }
  std::vector<Bits> by_reference(const Buffers& b) const {
    std::vector<Bits> values;
    for (std::size_t i = 0; i < b.count; ++i) {
      std::vector<Bits> column;
      for (const std::byte* input : b.inputs) column.push_back(get(type(), input, i));
      values.push_back(
          kernels::reference::reduce(type(), op(), column, op() == ReduceOp::avg ? std::uint32_t(column.size()) : 1));
    }
    return values;
  }
};

TEST_P(Kernels, GiveTheBitsOfTheHost) {
  std::uint64_t seed = 1;
  for (std::size_t n = 1; n <= 8; ++n)
    for (const Fill fill : {Fill::moderate, Fill::wild})
      for (const Grid& grid : kGrids) {
        Buffers b(type(), n, 203, fill, ++seed, (n * 3 % 16) / size_of(type()) * size_of(type()), true);
        reduce(type(), combine_of(op()), grid, arguments(b));
        ASSERT_EQ(b.result(), on_host(b)) << n << " inputs, " << grid.blocks << " blocks of " << grid.threads;
        ASSERT_TRUE(b.guards_intact());
        if (op() == ReduceOp::premul_sum) continue;  // the reference knows no factors; scale() has its own test
        ASSERT_EQ(b.result(), by_reference(b)) << n << " inputs";
      }
}

TEST_P(Kernels, TakeAnySizeAndAlignment) {
  std::uint64_t seed = 100;
  for (const std::size_t count : {0, 1, 2, 3, 15, 16, 17, 64, 129})
    for (const std::size_t offset : {std::size_t(0), size_of(type()), std::size_t(8), std::size_t(5)})
      for (const bool alike : {true, false})
        for (const std::size_t n : {std::size_t(2), std::size_t(5)}) {
          Buffers b(type(), n, count, Fill::wild, ++seed, offset, alike);
          reduce(type(), combine_of(op()), {2, 8}, arguments(b));
          ASSERT_EQ(b.result(), on_host(b)) << count << " elements at offset " << offset;
          ASSERT_TRUE(b.guards_intact()) << count << " elements at offset " << offset;
        }
}

TEST_P(Kernels, OutputMayBeAnInput) {
  for (const std::size_t n : {std::size_t(1), std::size_t(2), std::size_t(4), std::size_t(8)})
    for (std::size_t target = 0; target < n; ++target) {
      Buffers b(type(), n, 150, Fill::wild, 900 + n, 0, true);
      const std::vector<Bits> expected = on_host(b);
      ReduceArguments a = arguments(b);
      a.out = const_cast<std::byte*>(b.inputs[target]);
      reduce(type(), combine_of(op()), {2, 16}, a);
      ASSERT_EQ(Buffers::elements_of(type(), a.out, b.count), expected) << n << " inputs into " << target;
    }
}

INSTANTIATE_TEST_SUITE_P(All, Kernels, testing::Combine(testing::ValuesIn(kTypes), testing::ValuesIn(kOps)),
                         [](const auto& test) {
                           return std::string(name_of(std::get<0>(test.param))) + "_" +
                                  std::string(name_of(std::get<1>(test.param)));
                         });

class Casts : public testing::TestWithParam<DataType> {};

TEST_P(Casts, GiveTheBitsOfTheHost) {
  for (const DataType to : kTypes)
    for (const std::size_t offset : {std::size_t(0), std::size_t(1)})
      for (const Fill fill : {Fill::moderate, Fill::wild}) {
        constexpr std::size_t count = 301;
        const Buffers from(GetParam(), 1, count, fill, 7 + std::size_t(to), offset * size_of(GetParam()), true);
        Buffers there(to, 0, count, fill, 1, offset * size_of(to), true);
        Bytes expected(count * size_of(to));
        kernels::cast(to, expected.data(), GetParam(), from.inputs[0], count);
        cast(GetParam(), to, {2, 32}, {there.out, from.inputs[0], count});
        ASSERT_EQ(there.result(), Buffers::elements_of(to, expected.data(), count))
            << "to " << name_of(to) << " at " << offset;
        ASSERT_TRUE(there.guards_intact());
      }
}

INSTANTIATE_TEST_SUITE_P(All, Casts, testing::ValuesIn(kTypes),
                         [](const auto& test) { return std::string(name_of(test.param)); });

}  // namespace
}  // namespace tutti::emulation
