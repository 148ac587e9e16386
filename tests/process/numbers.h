#pragma once
// Numbers: the elements that tests send and what must come back, by arithmetic of the test's own: bits are decoded
// here, sums are made in long double or modulo 2^64. Uses none of the library's kernels.
#include <tutti/tutti.h>
#include <cstddef>
#include <cstdint>
#include <string>

namespace tutti::test {

// Where an output element comes from: element `index` of the input of `rank`, or of every rank's input, reduced.
struct Source {
  int rank;
  std::size_t index;
};
inline constexpr int kEveryRank = -1;

// What fills the inputs: random, never zero, in a range where `op` among up to 8 ranks stays finite.
struct Filling {
  DataType type = DataType::f32;
  ReduceOp op = ReduceOp::sum;
  std::uint64_t seed = 1;

  std::uint64_t bits(int rank, std::size_t index) const;
  double factor(int rank) const;  // of premul_sum; exact in every type
};

std::uint64_t mixed(std::uint64_t x);
std::uint64_t load(const std::byte* at, std::size_t size);
void store(std::byte* at, std::size_t size, std::uint64_t bits);
long double real_of(DataType type, std::uint64_t bits);  // of floats; NaN for infinities too
// "" when `got` is right. Integers, copies, min and max: exactly. Floats, with u half an ulp of 1 and n ranks:
//   f16, f8 sum and avg: |error| <= u |exact| + n 2^-24 sum|x| (accumulated in f32, rounded once)
//   other sums: (n + 2) u sum|x|; prod: ((1 + u)^(n + 1) - 1) |exact|
std::string wrong(const Filling& filling, int rank_count, Source source, std::uint64_t got);

}  // namespace tutti::test
