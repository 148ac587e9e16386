// The kernels on the GPU against the host's, bit for bit: every type and operation, one to eight inputs, sizes and
// alignments, any bits. And their share of what a copy on the same GPU moves.
#include <gtest/gtest.h>
#include <tests/gpu/gpu.h>
#include <tests/kernels/reference.h>

#include <cstdio>

namespace tutti::gpu {
namespace {

using namespace kernels::reference;
using Bytes = std::vector<std::byte>;

constexpr double kLeastShare = 0.85;

#define NEEDS_GPU()                       \
  std::string why_not;                    \
  const auto gpu = gpu::device(&why_not); \
  if (!gpu) GTEST_SKIP() << why_not

Bytes random_bytes(std::size_t bytes, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  Bytes values(bytes + 8);
  for (std::size_t i = 0; i < bytes; i += 8) {
    const std::uint64_t word = random();
    std::memcpy(values.data() + i, &word, 8);
  }
  values.resize(bytes);
  return values;
}

class Kernels : public testing::TestWithParam<std::tuple<DataType, ReduceOp>> {};

TEST_P(Kernels, GiveTheBitsOfTheHost) {
  NEEDS_GPU();
  const auto [type, op] = GetParam();
  const Stream stream;
  std::uint64_t seed = 1;
  for (int n = 1; n <= 8; ++n)
    for (const std::size_t count : {std::size_t(1), std::size_t(1003), std::size_t(300'001)})
      for (const std::size_t skip :
           {std::size_t(0), std::size_t(1)}) {  // elements in front, of the inputs alone or of all
        std::vector<std::unique_ptr<Memory>> there;
        std::vector<Bytes> here;
        std::vector<const std::byte*> inputs;
        std::vector<double> factors;
        DeviceReduction r;
        for (int k = 0; k < n; ++k) {
          here.push_back(random_bytes((count + 1) * size_of(type), ++seed));
          there.push_back(std::make_unique<Memory>(here.back()));
          factors.push_back(0.3 + 1.7 * k);
          r.inputs[k] = there.back()->at() + skip * size_of(type);
        }
        for (auto& input : here) {
          if (op == ReduceOp::premul_sum)
            kernels::scale(type, input.data() + skip * size_of(type), input.data() + skip * size_of(type), count,
                           factors[std::size_t(&input - here.data())]);
          inputs.push_back(input.data() + skip * size_of(type));
        }
        const Memory out((count + 1) * size_of(type));
        r.type = type, r.op = op, r.n = n, r.count = count;
        r.out = out.at() + (count % 2 ? skip * size_of(type) : 0);
        r.divide_by = op == ReduceOp::avg ? std::uint32_t(n) : 1;
        r.factors = op == ReduceOp::premul_sum ? factors.data() : nullptr;
        const Status status = gpu->reduce(stream.handle(), r);
        ASSERT_TRUE(status.ok()) << status.to_string();
        Bytes expected(count * size_of(type)), got = out.read((count + 1) * size_of(type));
        kernels::reduce(type, op, expected.data(), inputs, count, {r.divide_by});
        ASSERT_EQ(std::memcmp(got.data() + (r.out - out.at()), expected.data(), expected.size()), 0)
            << n << " inputs of " << count << " at " << skip;
      }
}

TEST_P(Kernels, MoveNearlyAsMuchAsACopy) {
  NEEDS_GPU();
  const auto [type, op] = GetParam();
  constexpr std::size_t kBytes = 256 << 20;
  const Stream stream;
  std::vector<std::unique_ptr<Memory>> inputs;
  for (int k = 0; k < 8; ++k) inputs.push_back(std::make_unique<Memory>(random_bytes(kBytes, std::uint64_t(k))));
  const Memory out(kBytes);
  const double copy =
      2.0 * kBytes / seconds_of(stream, [&] { EXPECT_TRUE(gpu->copy(stream.handle(), out.at(), inputs[0]->at(), {kBytes}).ok()); });
  for (const int n : {2, 3, 4, 8}) {
    DeviceReduction r;
    std::vector<double> factors(8, 1.25);
    r.type = type, r.op = op, r.n = n, r.count = kBytes / size_of(type), r.out = out.at();
    r.divide_by = op == ReduceOp::avg ? std::uint32_t(n) : 1;
    r.factors = op == ReduceOp::premul_sum ? factors.data() : nullptr;
    for (int k = 0; k < n; ++k) r.inputs[k] = inputs[std::size_t(k)]->at();
    const double moved = double(n + 1) * kBytes / seconds_of(stream, [&] { EXPECT_TRUE(gpu->reduce(stream.handle(), r).ok()); });
    std::printf("reduce %s %s of %d: %.0f GB/s, %.2f of a copy's %.0f GB/s\n", std::string(name_of(type)).c_str(),
                std::string(name_of(op)).c_str(), n, moved / 1e9, moved / copy, copy / 1e9);
    EXPECT_GE(moved / copy, kLeastShare) << n << " inputs";
    EXPECT_LE(moved / copy, 1.5) << n << " inputs: faster than the memory, so it has not run";
  }
}

INSTANTIATE_TEST_SUITE_P(All, Kernels, testing::Combine(testing::ValuesIn(kTypes), testing::ValuesIn(kOps)),
                         [](const auto& test) {
                           return std::string(name_of(std::get<0>(test.param))) + "_" +
                                  std::string(name_of(std::get<1>(test.param)));
                         });

class Casts : public testing::TestWithParam<DataType> {};

TEST_P(Casts, GiveTheBitsOfTheHost) {
  NEEDS_GPU();
  constexpr std::size_t count = 100'003;
  const Stream stream;
  const Bytes from = random_bytes(count * size_of(GetParam()), 3);
  const Memory in(from);
  for (const DataType to : kTypes) {
    const Memory out(count * size_of(to));
    const Status status = gpu->cast(stream.handle(), to, out.at(), GetParam(), in.at(), count);
    ASSERT_TRUE(status.ok()) << status.to_string();
    Bytes expected(count * size_of(to));
    kernels::cast(to, expected.data(), GetParam(), from.data(), count);
    ASSERT_EQ(out.read(expected.size()), expected) << name_of(to);
  }
}
INSTANTIATE_TEST_SUITE_P(All, Casts, testing::ValuesIn(kTypes),
                         [](const auto& test) { return std::string(name_of(test.param)); });

}  // namespace
}  // namespace tutti::gpu
