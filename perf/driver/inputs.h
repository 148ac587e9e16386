#pragma once
// What goes into the buffers, and what must come out. Every rank can make every rank's inputs: they are a hash of
// (seed, rank, index). Inputs repeat after kPeriod elements, a prime, so that a large buffer is filled and compared at
// the speed of memcpy and memcmp, while a chunk in a wrong place (chunks are never a multiple of kPeriod long) still
// shows.
//
// exact:  a reduction of them gives the same bits in any order. Float sums: small whole numbers times one power of two
// an
//         element, whose absolute values add up to at most 2^significand over all ranks (with more ranks than that, so
//         many take part in an element, others for the next). Products: one full significand and powers of two. min,
//         max and what is only moved: any finite number (moved: any bits). Integers: any, they wrap; odd for products.
// random: floats in (-1, 1), rounded to the type; the expected value is the exact one up to `bound`:
//         ((1+u)^k - 1) * (sum of |x|, or |product|) + k*eta, k = ranks + 1, u the unit roundoff, eta the smallest
//         number; u counts twice for types that are accumulated in f32. Integers, min and max as in exact.
#include <cstdint>
#include <optional>
#include <vector>

#include <tutti/types.h>

namespace tutti::perf {

inline constexpr std::size_t kPeriod = 65521;

enum class Check { exact, random };

struct Recipe {
  DataType type = DataType::f32;
  std::optional<ReduceOp> op;  // none: data that is only moved
  int rank_count = 1;
  Check check = Check::exact;
  std::uint64_t seed = 0;
  bool operator==(const Recipe&) const = default;
};

// This rank's factor of premul_sum: 1 or 2, by parity.
double factor_of(int rank);

// The first `count` elements (at most kPeriod) of a rank's input.
std::vector<std::byte> make_inputs(const Recipe& recipe, int rank, std::size_t count);

// The first `count` elements (at most kPeriod) of the reduction. `bits` when it is known to the bit; else value and
// bound.
struct Expected {
  std::vector<std::byte> bits;
  std::vector<long double> value, bound;
};
Expected make_expected(const Recipe& recipe, std::size_t count);

}  // namespace tutti::perf
