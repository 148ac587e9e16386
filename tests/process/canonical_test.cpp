// TUTTI_ORDER=canonical: the bits of a sum depend on the ranks' inputs alone: not on algorithm, size, place, segment,
// wire, sockets or instruction set. They are those of the balanced tree over rank indices, evaluated here.
#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <map>
#include <mutex>
#include <set>

#include "tests/process/numbers.h"
#include "tests/process/world.h"

namespace tutti::test {
namespace {

constexpr std::array<DataType, 6> kTypes = {DataType::f32, DataType::f64,    DataType::bf16,
                                            DataType::f16, DataType::f8e4m3, DataType::f8e5m2};
constexpr std::size_t kLongest = 20011;
const std::vector<std::size_t> kCounts = {1, 7, 1024, 4095, 16385, kLongest};
const std::vector<std::string> kAlgorithms = {"direct", "two_shot",           "ring",      "bidirectional_ring",
                                              "tree",   "recursive_doubling", "circulant", "hierarchical",
                                              "pat",    "binomial",           "bruck",     "chain"};

using Bytes = std::vector<std::byte>;

// Inputs that cancel: every rank's has the sign and about the size of what the ones before left over.
Bytes inputs(DataType type, int rank, std::size_t count) {
  const Filling filling{type, ReduceOp::sum, 99};
  Bytes out(count * size_of(type));
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint64_t sign = std::uint64_t(1) << (8 * size_of(type) - 1);
    std::uint64_t bits = filling.bits(rank, i) & ~sign;
    if ((std::size_t(rank) + i) % 2) bits |= sign;
    store(out.data() + i * size_of(type), size_of(type), bits);
  }
  return out;
}

template <class Number, class Element>
Number balanced(const std::vector<Element>& x, std::size_t first, std::size_t last) {
  if (last - first == 1) return Number(x[first]);
  const std::size_t middle = first + std::bit_floor(last - first - 1);
  return balanced<Number>(x, first, middle) + balanced<Number>(x, middle, last);
}

std::uint16_t to_bf16(float x) {  // to nearest, ties to even
  const auto bits = std::bit_cast<std::uint32_t>(x);
  return std::uint16_t((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

// What the tree over the ranks gives, for f32, f64 and bf16.
Bytes evaluated(DataType type, int n, std::size_t count) {
  const std::size_t size = size_of(type);
  std::vector<Bytes> all;
  for (int r = 0; r < n; ++r) all.push_back(inputs(type, r, count));
  Bytes out(count * size);
  for (std::size_t i = 0; i < count; ++i) {
    std::vector<double> doubles;
    std::vector<float> floats;
    for (const Bytes& x : all) {
      const auto value = double(real_of(type, load(x.data() + i * size, size)));
      doubles.push_back(value);
      floats.push_back(float(value));
    }
    std::uint64_t bits = 0;
    if (type == DataType::f64)
      bits = std::bit_cast<std::uint64_t>(balanced<double>(doubles, 0, doubles.size()));
    else if (type == DataType::f32)
      bits = std::bit_cast<std::uint32_t>(balanced<float>(floats, 0, floats.size()));
    else
      bits = to_bf16(balanced<float>(floats, 0, floats.size()));
    store(out.data() + i * size, size, bits);
  }
  return out;
}

// The one truth of each type, set by whoever is first (or by the tree), then compared with everyone's.
class Truth {
 public:
  explicit Truth(int n) {
    for (DataType type : {DataType::f32, DataType::f64, DataType::bf16}) known_[type] = evaluated(type, n, kLongest);
  }
  // Elements [0, count) from `at` of the vector.
  void compare(DataType type, const std::byte* got, std::size_t at, std::size_t count, const std::string& who) {
    const std::lock_guard lock(mutex_);
    ++compared_;
    const std::size_t size = size_of(type);
    auto& known = known_[type];
    if (known.empty()) {
      ASSERT_EQ(at + count, kLongest) << "the first one must be whole";
      known.assign(got, got + count * size);
      return;
    }
    for (std::size_t i = 0; i < count; ++i)
      ASSERT_EQ(load(got + i * size, size), load(known.data() + (at + i) * size, size))
          << name_of(type) << " element " << at + i << ": " << who;
  }
  int compared() const { return compared_; }

 private:
  std::map<DataType, Bytes> known_;
  std::mutex mutex_;
  int compared_ = 0;
};

bool refused(Communicator& comm, Collective what) {
  const auto choice = comm.explain(what, 100, DataType::f32);
  if (choice.ok()) return false;
  EXPECT_EQ(choice.status().code(), Code::invalid_argument);
  EXPECT_NE(choice.status().text().find("canonical"), std::string::npos);
  return true;
}

void all_reduces(Communicator& comm, Truth& truth, const std::string& who) {
  for (DataType type : kTypes)
    for (auto count = kCounts.rbegin(); count != kCounts.rend(); ++count) {
      const Bytes in = inputs(type, comm.rank(), *count);
      Bytes out(in.size()), place = in;
      ASSERT_EQ(comm.all_reduce({in.data(), out.data(), *count, type}).wait(), Status()) << who;
      truth.compare(type, out.data(), 0, *count, who + ", all_reduce");
      ASSERT_EQ(comm.all_reduce({place.data(), place.data(), *count, type}).wait(), Status()) << who;
      truth.compare(type, place.data(), 0, *count, who + ", all_reduce in place");
    }
}

void other_sums(Communicator& comm, Truth& truth, const std::string& who, bool scatter, bool reduce) {
  const auto n = std::size_t(comm.rank_count()), rank = std::size_t(comm.rank());
  for (DataType type : kTypes) {
    const std::size_t count = kLongest / n;
    const Bytes in = inputs(type, comm.rank(), kLongest);
    Bytes out(in.size());
    if (reduce) {
      const int root = int(n) - 1;
      ASSERT_EQ(comm.reduce({in.data(), out.data(), kLongest, type, ReduceOp::sum, root}).wait(), Status()) << who;
      if (comm.rank() == root) truth.compare(type, out.data(), 0, kLongest, who + ", reduce");
    }
    if (scatter) {
      ASSERT_EQ(comm.reduce_scatter({in.data(), out.data(), count, type}).wait(), Status()) << who;
      truth.compare(type, out.data(), rank * count, count, who + ", reduce_scatter");
    }
  }
}

void compare_in(int n, Settings settings, Truth& truth) {
  std::string who;
  for (const auto& [name, value] : settings) who += name + "=" + value + " ";
  settings.emplace_back("TUTTI_ORDER", "canonical");
  World world(n, settings);
  world.run([&](Communicator& comm) {
    if (!refused(comm, Collective::all_reduce)) all_reduces(comm, truth, who);
    const bool scatter = !refused(comm, Collective::reduce_scatter), reduce = !refused(comm, Collective::reduce);
    other_sums(comm, truth, who, scatter, reduce);
  });
}

class Canonical : public testing::TestWithParam<int> {};

TEST_P(Canonical, OneResultForAllSettings) {
  const int n = GetParam();
  Truth truth(n);
  compare_in(n, {}, truth);
  for (const auto& algorithm : kAlgorithms) {
    compare_in(n, {{"TUTTI_ALGO", algorithm}}, truth);
    if (HasFailure()) return;
  }
  std::vector<Settings> others = {{{"TUTTI_SEGMENT", "4K"}},
                                  {{"TUTTI_SEGMENT", "64K"}},
                                  {{"TUTTI_SEGMENT", "1237"}},
                                  {{"TUTTI_TRANSPORT", "tcp"}, {"TUTTI_SOCKETS", "1"}},
                                  {{"TUTTI_TRANSPORT", "tcp"}, {"TUTTI_SOCKETS", "4"}, {"TUTTI_SEGMENT", "4K"}},
                                  {{"TUTTI_TRANSPORT", "tcp"}, {"TUTTI_ALGO", "recursive_doubling"}},
                                  {{"TUTTI_SIMD", "scalar"}}};
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2")) others.push_back({{"TUTTI_SIMD", "avx2"}});
  if (__builtin_cpu_supports("avx512bw")) others.push_back({{"TUTTI_SIMD", "avx512"}});
#endif
  for (const Settings& settings : others) {
    compare_in(n, settings, truth);
    if (HasFailure()) return;
  }
  EXPECT_GT(truth.compared(), 300);
}

INSTANTIATE_TEST_SUITE_P(Ranks, Canonical, testing::Values(2, 3, 4, 5, 6, 7, 8), testing::PrintToStringParamName());

TEST(Order, AnyOrderGivesDifferentBitsByAlgorithm) {
  std::set<std::string> results;
  for (const char* algorithm : {"direct", "ring", "tree", "circulant", "recursive_doubling"}) {
    World world(6, {{"TUTTI_ALGO", algorithm}});
    world.run([&](Communicator& comm) {
      Bytes data = inputs(DataType::f32, comm.rank(), kLongest);
      ASSERT_EQ(comm.all_reduce({data.data(), data.data(), kLongest}).wait(), Status());
      static std::mutex mutex;
      const std::lock_guard lock(mutex);
      if (comm.rank() == 0) results.emplace(reinterpret_cast<const char*>(data.data()), data.size());
    });
  }
  EXPECT_GE(results.size(), 2u);
}

TEST(Order, RingIsRefusedByName) {
  World world(4, {{"TUTTI_ALGO", "ring"}, {"TUTTI_ORDER", "canonical"}});
  world.run([](Communicator& comm) {
    float x = 1;
    const Status status = comm.all_reduce({&x, &x, 1}).wait();
    EXPECT_EQ(status.code(), Code::invalid_argument);
    EXPECT_NE(status.text().find("ring"), std::string::npos) << status.text();
    EXPECT_NE(status.text().find("canonical"), std::string::npos) << status.text();
  });
}

TEST(Order, RanksThatDisagreeDoNotMeet) {
  const std::string address = fresh_address();
  Child other([&] {
    const Environment environment(Settings{{"TUTTI_ORDER", "canonical"}});
    const auto made = Communicator::create(1, 2, address, {.init_timeout = std::chrono::seconds(20), .job_key = "k"});
    return made.ok() ? 1 : made.status().code() == Code::mismatch ? 0 : 2;
  });
  const auto made = Communicator::create(0, 2, address, {.init_timeout = std::chrono::seconds(20), .job_key = "k"});
  ASSERT_FALSE(made.ok());
  EXPECT_EQ(made.status().code(), Code::mismatch) << made.status().to_string();
  EXPECT_NE(made.status().text().find("TUTTI_ORDER"), std::string::npos) << made.status().text();
  EXPECT_EQ(other.exit_code(), 0);
}

}  // namespace
}  // namespace tutti::test
