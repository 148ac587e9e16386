// Numbers: decoding, references and bounds.
#include "tests/process/numbers.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

namespace tutti::test {
namespace {

struct Format {
  int exponent, mantissa, bias;
};

Format format_of(DataType type) {
  switch (type) {
    case DataType::f16: return {5, 10, 15};
    case DataType::bf16: return {8, 7, 127};
    case DataType::f32: return {8, 23, 127};
    case DataType::f64: return {11, 52, 1023};
    case DataType::f8e4m3: return {4, 3, 7};
    default: return {5, 2, 15};
  }
}

bool is_signed(DataType type) { return type == DataType::i8 || type == DataType::i32 || type == DataType::i64; }

std::uint64_t cut(std::uint64_t bits, std::size_t size) {
  return size == 8 ? bits : bits & ((std::uint64_t(1) << 8 * size) - 1);
}

std::int64_t extended(DataType type, std::uint64_t bits) {
  const int unused = 64 - 8 * int(size_of(type));
  return is_signed(type) ? std::int64_t(bits << unused) >> unused : std::int64_t(bits);
}

bool less(DataType type, std::uint64_t a, std::uint64_t b) {
  return is_signed(type) ? extended(type, a) < extended(type, b) : a < b;
}

std::string told(const char* what, std::uint64_t wanted, std::uint64_t got) {
  return std::string(what) + ": wanted bits " + std::to_string(wanted) + ", got " + std::to_string(got);
}

std::uint64_t reduced_integer(const Filling& f, int rank_count, std::size_t index) {
  std::uint64_t result = f.bits(0, index);
  if (f.op == ReduceOp::premul_sum) result *= std::uint64_t(f.factor(0));
  if (f.op == ReduceOp::avg) result = std::uint64_t(extended(f.type, result));
  for (int r = 1; r < rank_count; ++r) {
    const std::uint64_t x = f.bits(r, index);
    switch (f.op) {
      case ReduceOp::sum: result += x; break;
      case ReduceOp::prod: result *= x; break;
      case ReduceOp::min: result = less(f.type, x, result) ? x : result; break;
      case ReduceOp::max: result = less(f.type, result, x) ? x : result; break;
      case ReduceOp::premul_sum: result += x * std::uint64_t(f.factor(r)); break;
      case ReduceOp::avg: result += std::uint64_t(extended(f.type, x)); break;
    }
  }
  if (f.op == ReduceOp::avg) result = std::uint64_t(std::int64_t(result) / rank_count);
  return cut(result, size_of(f.type));
}

std::string wrong_float(const Filling& f, int n, std::size_t index, std::uint64_t got_bits) {
  const Format format = format_of(f.type);
  const long double u = std::ldexp(1.0L, -format.mantissa - 1), tiny = std::ldexp(1.0L, -format.bias - format.mantissa);
  const long double got = real_of(f.type, got_bits);
  long double exact = f.op == ReduceOp::prod ? 1 : 0, size = 0;
  long double least = std::numeric_limits<long double>::infinity(), most = -least;
  for (int r = 0; r < n; ++r) {
    const long double x = real_of(f.type, f.bits(r, index)) * (f.op == ReduceOp::premul_sum ? f.factor(r) : 1);
    exact = f.op == ReduceOp::prod ? exact * x : exact + x;
    size += std::fabs(x);
    least = std::min(least, x);
    most = std::max(most, x);
  }
  if (f.op == ReduceOp::min) exact = least;
  if (f.op == ReduceOp::max) exact = most;
  if (f.op == ReduceOp::avg) exact /= n, size /= n;
  long double bound = (n + 2) * u * size + tiny;
  const bool once = is_narrow_float(f.type) && f.type != DataType::bf16;
  if (once && (f.op == ReduceOp::sum || f.op == ReduceOp::avg))
    bound = u * std::fabs(exact) + (n + 1) * std::ldexp(1.0L, -24) * size + tiny;
  if (f.op == ReduceOp::prod) bound = (std::pow(1 + u, n + 1) - 1) * std::fabs(exact);
  if (f.op == ReduceOp::min || f.op == ReduceOp::max || n == 1) bound = f.op == ReduceOp::premul_sum ? bound : 0;
  if (std::fabs(got - exact) <= bound) return "";
  return "wanted " + std::to_string(exact) + " within " + std::to_string(double(bound)) + ", got " +
         std::to_string(got);
}

}  // namespace

std::uint64_t mixed(std::uint64_t x) {  // the finalizer of SplitMix64
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

std::uint64_t Filling::bits(int rank, std::size_t index) const {
  const std::uint64_t chance = mixed(seed * 1000003 + mixed((std::uint64_t(rank) << 44) + index));
  const std::size_t size = size_of(type);
  if (!is_floating(type)) {
    if (op != ReduceOp::avg) return cut(chance, size) ? cut(chance, size) : 1;
    const std::int64_t small = 1 + std::int64_t(chance % 15);
    return cut(std::uint64_t(is_signed(type) && (chance >> 20 & 1) ? -small : small), size);
  }
  const Format format = format_of(type);
  // prod: magnitudes in [1, 2); else in [1/4, 4).
  const std::uint64_t exponent = std::uint64_t(format.bias) + (op == ReduceOp::prod ? 0 : (chance >> 60) % 4 - 2);
  const std::uint64_t mantissa = chance & ((std::uint64_t(1) << format.mantissa) - 1);
  return (chance >> 59 & 1) << (format.exponent + format.mantissa) | exponent << format.mantissa | mantissa;
}

double Filling::factor(int rank) const { return is_floating(type) ? (rank % 4 + 1) * 0.5 : rank % 3 + 1; }

std::uint64_t load(const std::byte* at, std::size_t size) {
  std::uint64_t bits = 0;
  std::memcpy(&bits, at, size);
  return bits;
}

void store(std::byte* at, std::size_t size, std::uint64_t bits) { std::memcpy(at, &bits, size); }

long double real_of(DataType type, std::uint64_t bits) {
  if (type == DataType::f32) return std::bit_cast<float>(std::uint32_t(bits));
  if (type == DataType::f64) return std::bit_cast<double>(bits);
  const Format format = format_of(type);
  const int exponent = int(bits >> format.mantissa & ((1u << format.exponent) - 1));
  const auto mantissa = double(bits & ((1u << format.mantissa) - 1));
  const bool last = exponent == (1 << format.exponent) - 1;
  if (last && (type != DataType::f8e4m3 || mantissa == 7)) return std::numeric_limits<double>::quiet_NaN();
  const double scale = std::ldexp(1.0, std::max(exponent, 1) - format.bias - format.mantissa);
  const double value = ((exponent ? double(1 << format.mantissa) : 0.0) + mantissa) * scale;
  return bits >> (format.exponent + format.mantissa) & 1 ? -value : value;
}

std::string wrong(const Filling& filling, int rank_count, Source source, std::uint64_t got) {
  if (source.rank != kEveryRank) {
    const std::uint64_t wanted = filling.bits(source.rank, source.index);
    return wanted == got ? "" : told("copy", wanted, got);
  }
  if (is_floating(filling.type)) return wrong_float(filling, rank_count, source.index, got);
  const std::uint64_t wanted = reduced_integer(filling, rank_count, source.index);
  return wanted == got ? "" : told("integer", wanted, got);
}

}  // namespace tutti::test
