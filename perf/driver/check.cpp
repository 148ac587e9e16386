#include "perf/driver/check.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "perf/driver/number.h"

namespace tutti::perf {
namespace {

// Calls visit(offset, index, length) for runs of a buffer that are contiguous in a pattern of `period` elements.
template <class Visit>
void for_runs(std::size_t from, std::size_t count, std::size_t period, Visit visit) {
  for (std::size_t done = 0; done < count;) {
    const std::size_t index = (from + done) % period;
    const std::size_t length = std::min(count - done, period - index);
    visit(done, index, length);
    done += length;
  }
}

std::size_t count_different(const std::byte* a, const std::byte* b, std::size_t count, std::size_t size) {
  if (std::memcmp(a, b, count * size) == 0) return 0;
  std::size_t different = 0;
  for (std::size_t i = 0; i < count; ++i) different += std::memcmp(a + i * size, b + i * size, size) != 0;
  return different;
}

// How many times the bound a value is off; infinite for NaN.
long double error_over_bound(long double got, long double value, long double bound) {
  const long double ratio = std::fabs(got - value) / bound;
  return std::isnan(ratio) ? std::numeric_limits<long double>::infinity() : ratio;
}

}  // namespace

void Verdict::add(const Verdict& other) {
  wrong += other.wrong;
  error_over_bound = std::max(error_over_bound, other.error_over_bound);
}

const std::vector<std::byte>& Checker::inputs(int rank, std::size_t count) {
  std::vector<std::byte>& known = inputs_[rank];
  if (known.size() < std::min(count, kPeriod) * size_of(recipe_.type)) known = make_inputs(recipe_, rank, count);
  return known;
}

const Expected& Checker::expected(std::size_t count) {
  const auto known = [&] { return std::max(expected_->bits.size() / size_of(recipe_.type), expected_->value.size()); };
  if (!expected_ || known() < std::min(count, kPeriod)) expected_ = make_expected(recipe_, count);
  return *expected_;
}

void Checker::fill(std::byte* at, int rank, std::size_t from, std::size_t count) {
  const std::size_t size = size_of(recipe_.type);
  const std::byte* pattern = inputs(rank, from + count).data();
  for_runs(from, count, kPeriod, [&](std::size_t offset, std::size_t index, std::size_t length) {
    std::memcpy(at + offset * size, pattern + index * size, length * size);
  });
}

Verdict Checker::compare(const std::byte* at, int source, std::size_t from, std::size_t count) {
  Verdict verdict;
  if (count == 0) return verdict;
  const std::size_t size = size_of(recipe_.type);
  const Expected* reduction = source == kReduced ? &expected(from + count) : nullptr;
  const std::byte* pattern = reduction ? reduction->bits.data() : inputs(source, from + count).data();
  const bool bitwise = !reduction || reduction->value.empty();
  for_runs(from, count, kPeriod, [&](std::size_t offset, std::size_t index, std::size_t length) {
    if (bitwise) {
      verdict.wrong += count_different(at + offset * size, pattern + index * size, length, size);
      return;
    }
    for (std::size_t i = 0; i < length; ++i) {
      const long double got = decode(recipe_.type, load_bits(recipe_.type, at + (offset + i) * size));
      const long double ratio = error_over_bound(got, reduction->value[index + i], reduction->bound[index + i]);
      verdict.wrong += ratio > 1;
      verdict.error_over_bound = std::max(verdict.error_over_bound, double(ratio));
    }
  });
  return verdict;
}

Verdict Checker::compare(const std::byte* output, const Shape& shape) {
  Verdict verdict;
  for (const Piece& piece : shape.expected)
    verdict.add(compare(output + piece.at * size_of(recipe_.type), piece.source, piece.from, piece.count));
  return verdict;
}

}  // namespace tutti::perf
