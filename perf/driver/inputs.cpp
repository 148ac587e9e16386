#include "perf/driver/inputs.h"

#include <algorithm>
#include <cmath>

#include "perf/driver/number.h"

namespace tutti::perf {
namespace {

// splitmix64's finalizer (Steele, Lea, Flood 2014).
std::uint64_t mix(std::uint64_t x) {
  x += 0x9e3779b97f4a7c15ull;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
  return x ^ (x >> 31);
}

std::uint64_t hash(const Recipe& r, std::uint64_t stream, std::uint64_t index) {
  return mix(mix(r.seed * 0x100000001b3ull + stream) ^ index);
}
std::uint64_t of_element(const Recipe& r, std::uint64_t index) { return hash(r, 0, index); }
std::uint64_t of_rank(const Recipe& r, int rank, std::uint64_t index) {
  return hash(r, std::uint64_t(rank) + 1, index);
}

bool has_rounding(const Recipe& r) {
  return r.op && is_floating(r.type) && *r.op != ReduceOp::min && *r.op != ReduceOp::max;
}
bool adds(const Recipe& r) { return r.op != ReduceOp::prod; }

double exact_summand(const Recipe& r, int rank, std::uint64_t index) {
  const std::uint64_t element = of_element(r, index), own = of_rank(r, rank, index);
  const std::uint64_t ranks = std::uint64_t(r.rank_count);
  const std::uint64_t largest_factor = r.op == ReduceOp::premul_sum ? 2 : 1;
  const std::uint64_t limit = (1ull << format_of(r.type).significand) / largest_factor;
  const std::uint64_t active = std::min(ranks, limit);
  if ((std::uint64_t(rank) + element) % ranks >= active) return 0.0;
  const double magnitude = double(1 + (own >> 1) % (limit / active));
  const int scale = int((element >> 32) % 5) - 2;
  return std::ldexp(own & 1 ? -magnitude : magnitude, scale);
}

double exact_multiplicand(const Recipe& r, int rank, std::uint64_t index) {
  const std::uint64_t own = of_rank(r, rank, index), ranks = std::uint64_t(r.rank_count);
  const std::uint64_t place = (std::uint64_t(rank) + of_element(r, index)) % ranks;
  const double sign = own & 1 ? -1.0 : 1.0;
  if (place == 0) {
    const int fraction_bits = format_of(r.type).significand - 1;
    return sign * (1.0 + std::ldexp(double((own >> 1) & ((1ull << fraction_bits) - 1)), -fraction_bits));
  }
  return sign * (place <= 2 ? 2.0 : place <= 4 ? 0.5 : 1.0);  // no partial product leaves [2^-2, 2^3)
}

std::uint64_t any_finite(const Recipe& r, int rank, std::uint64_t index) {
  const std::uint64_t mask = size_of(r.type) == 8 ? ~0ull : (1ull << (8 * size_of(r.type))) - 1;
  const std::uint64_t bits = of_rank(r, rank, index) & mask;
  if (!is_floating(r.type)) return bits;
  const double value = decode(r.type, bits);
  return std::isfinite(value) && value != 0 ? bits : encode(r.type, 1.0);
}

std::uint64_t input_bits(const Recipe& r, int rank, std::uint64_t index) {
  if (!r.op) return of_rank(r, rank, index);
  if (!has_rounding(r)) {
    const std::uint64_t bits = any_finite(r, rank, index);
    return r.op == ReduceOp::prod && rank > 0 ? bits | 1 : bits;
  }
  if (r.check == Check::random) {
    const std::uint64_t own = of_rank(r, rank, index);
    const double magnitude = std::ldexp(double(own >> 11), -53);
    return encode(r.type, own & 1 ? -magnitude : magnitude);
  }
  return encode(r.type, adds(r) ? exact_summand(r, rank, index) : exact_multiplicand(r, rank, index));
}

std::uint64_t wrapped(const Recipe& r, std::uint64_t index) {
  std::uint64_t sum = 0, product = 1;
  for (int rank = 0; rank < r.rank_count; ++rank) {
    const std::uint64_t bits = input_bits(r, rank, index);
    sum += r.op == ReduceOp::premul_sum ? bits * std::uint64_t(factor_of(rank)) : bits;
    product *= bits;
  }
  if (r.op == ReduceOp::prod) return product;
  if (r.op != ReduceOp::avg) return sum;
  const std::int64_t signed_sum = sign_extend(r.type, sum);
  const std::uint64_t mask = size_of(r.type) == 8 ? ~0ull : (1ull << (8 * size_of(r.type))) - 1;
  return is_signed_integer(r.type) ? std::uint64_t(signed_sum / r.rank_count)
                                   : (sum & mask) / std::uint64_t(r.rank_count);
}

bool less(DataType type, std::uint64_t a, std::uint64_t b) {
  if (is_floating(type)) return decode(type, a) < decode(type, b);
  return is_signed_integer(type) ? sign_extend(type, a) < sign_extend(type, b) : a < b;
}

std::uint64_t extreme(const Recipe& r, std::uint64_t index) {
  std::uint64_t best = input_bits(r, 0, index);
  for (int rank = 1; rank < r.rank_count; ++rank) {
    const std::uint64_t bits = input_bits(r, rank, index);
    if (r.op == ReduceOp::min ? less(r.type, bits, best) : less(r.type, best, bits)) best = bits;
  }
  return best;
}

// The reduction of floats in long double, and the same of absolute values.
struct Real {
  long double value, absolute;
};
Real reduced(const Recipe& r, std::uint64_t index) {
  Real sum{0, 0}, product{1, 1};
  for (int rank = 0; rank < r.rank_count; ++rank) {
    const long double x = decode(r.type, input_bits(r, rank, index));
    const long double term = r.op == ReduceOp::premul_sum ? x * factor_of(rank) : x;
    sum = {sum.value + term, sum.absolute + std::fabs(term)};
    product = {product.value * x, product.absolute * std::fabs(x)};
  }
  if (r.op == ReduceOp::prod) return product;
  if (r.op == ReduceOp::avg) return {sum.value / r.rank_count, sum.absolute / r.rank_count};
  return sum;
}

// Exact inputs: the sum or product is a double, so an average is rounded once more only, to the type.
double exact_float(const Recipe& r, std::uint64_t index) {
  if (r.op != ReduceOp::avg) return double(reduced(r, index).value);
  Recipe summed = r;
  summed.op = ReduceOp::sum;
  return double(reduced(summed, index).value) / r.rank_count;
}

std::uint64_t expected_bits(const Recipe& r, std::uint64_t index) {
  if (has_rounding(r)) return encode(r.type, exact_float(r, index));
  if (r.op == ReduceOp::min || r.op == ReduceOp::max) return extreme(r, index);
  return wrapped(r, index);
}

}  // namespace

double factor_of(int rank) { return rank % 2 ? 2.0 : 1.0; }

std::vector<std::byte> make_inputs(const Recipe& recipe, int rank, std::size_t count) {
  const std::size_t size = size_of(recipe.type);
  std::vector<std::byte> bytes(std::min(count, kPeriod) * size);
  for (std::size_t i = 0; i * size < bytes.size(); ++i)
    store_bits(recipe.type, input_bits(recipe, rank, i), &bytes[i * size]);
  return bytes;
}

Expected make_expected(const Recipe& recipe, std::size_t count) {
  count = std::min(count, kPeriod);
  const std::size_t size = size_of(recipe.type);
  Expected expected;
  if (!has_rounding(recipe) || recipe.check == Check::exact) {
    expected.bits.resize(count * size);
    for (std::size_t i = 0; i < count; ++i) store_bits(recipe.type, expected_bits(recipe, i), &expected.bits[i * size]);
    return expected;
  }
  const int roundings = recipe.rank_count + 1;
  const long double u = unit_roundoff(recipe.type),
                    wide = is_narrow_float(recipe.type) ? unit_roundoff(DataType::f32) : 0.0;
  const long double growth = std::pow((1 + u) * (1 + wide), (long double)roundings) - 1;
  const long double floor = roundings * (long double)smallest_step(recipe.type);
  for (std::size_t i = 0; i < count; ++i) {
    const Real real = reduced(recipe, i);
    expected.value.push_back(real.value);
    expected.bound.push_back(growth * real.absolute + floor);
  }
  return expected;
}

}  // namespace tutti::perf
