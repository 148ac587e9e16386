#pragma once
// Contender: what is compared behind one face, and the timing loop that all share. Needs no library but the standard
// one: each contender is a program of its own, compiled as its library wants it (see docs/performance.md, "Against
// others").
//
// A program is started as the ranks of one job: PROGRAM COLLECTIVE BYTES,BYTES,... BUDGET_SECONDS. Rank 0 prints a line
// for each size: bytes and the median time of one call in microseconds. Exit status
// 1: a result was wrong, or the library failed.
#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <vector>

namespace tutti::perf::compare {

// f32, sums. Buffers do not overlap but where a library offers no other way.
class Contender {
 public:
  virtual ~Contender() = default;
  virtual int rank() const = 0;
  virtual int ranks() const = 0;
  virtual float* allocate(std::size_t count) = 0;      // lives as long as the contender
  // Before and after the calls of one size.
  virtual void prepare(const std::string& collective, const float* in, float* out, std::size_t count) = 0;
  // As prepared. all_reduce, broadcast from rank 0: `count` elements; reduce_scatter, all_gather: `count` a rank.
  virtual void call() = 0;
  virtual void barrier() = 0;
};

struct Wish {
  std::string collective;
  std::vector<std::size_t> bytes;      // of the whole: all_gather's output, reduce_scatter's input
  double budget = 0.1;                 // seconds a size, about
};

inline Wish wish_of(int argc, char** argv) {
  if (argc < 4) throw std::runtime_error("want COLLECTIVE BYTES,... SECONDS");
  Wish wish{argv[1], {}, std::stod(argv[3])};
  const std::string list = argv[2];
  for (std::size_t at = 0; at < list.size();) {
    std::size_t used = 0;
    wish.bytes.push_back(std::stoull(list.substr(at), &used));
    at += used + 1;
  }
  return wish;
}

inline double now_us() {
  return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Small whole numbers, so that sums are exact in any order.
inline float value(int rank, std::size_t i) {
  return float(int((std::uint64_t(i) * 2654435761u + std::uint64_t(rank) * 40503u) >> 7 & 63) - 31);
}

inline float sum_of(int ranks, std::size_t i) {
  float sum = 0;
  for (int r = 0; r < ranks; ++r) sum += value(r, i);
  return sum;
}

// The same on all ranks, without asking: from what a slow library may take.
inline int calls_of(std::size_t bytes, int ranks, double budget) {
  const double expected = 2e-6 * ranks + double(bytes) * ranks / 3e9;
  return std::clamp(int(budget / expected), 3, 4000);
}

struct Shape {
  std::size_t count, in, out;      // elements: of a call, of the buffers
};

inline Shape shape_of(const std::string& collective, std::size_t bytes, int ranks) {
  const std::size_t whole = std::max<std::size_t>(1, bytes / sizeof(float)),
                    part = std::max<std::size_t>(1, whole / std::size_t(ranks));
  if (collective == "all_gather") return {part, part, part * std::size_t(ranks)};
  if (collective == "reduce_scatter") return {part, part * std::size_t(ranks), part};
  if (collective == "all_reduce" || collective == "broadcast") return {whole, whole, whole};
  throw std::runtime_error("no such collective here: " + collective);
}

inline bool right(const std::string& collective, const Contender& c, const float* out, const Shape& shape) {
  const std::size_t n = shape.count, first = collective == "reduce_scatter" ? n * std::size_t(c.rank()) : 0;
  for (std::size_t i = 0; i < shape.out; ++i) {
    float wanted = 0;
    if (collective == "broadcast") wanted = value(0, i);
    else if (collective == "all_gather") wanted = value(int(i / n), i % n);
    else wanted = sum_of(c.ranks(), first + i);
    if (out[i] != wanted) return false;
  }
  return true;
}

// Median over batches of back-to-back calls; each batch ends with a barrier, so that no rank runs ahead unseen.
inline double time_us(Contender& c, int calls) {
  constexpr int kBatches = 5;
  const int batch = std::max(1, calls / kBatches);
  std::vector<double> times;
  for (int b = 0; b < kBatches; ++b) {
    c.barrier();
    const double start = now_us();
    for (int i = 0; i < batch; ++i) c.call();
    c.barrier();
    times.push_back((now_us() - start) / batch);
  }
  std::sort(times.begin(), times.end());
  return times[times.size() / 2];
}

// Exit status.
inline int compete(Contender& c, const Wish& wish) {
  const std::size_t most = *std::max_element(wish.bytes.begin(), wish.bytes.end());
  const Shape largest = shape_of(wish.collective, most, c.ranks());
  float *in = c.allocate(largest.in), *out = c.allocate(largest.out);
  for (const std::size_t bytes : wish.bytes) {
    const Shape shape = shape_of(wish.collective, bytes, c.ranks());
    for (std::size_t i = 0; i < shape.in; ++i) in[i] = value(c.rank(), i);
    std::fill(out, out + shape.out, -1.0f);
    c.prepare(wish.collective, in, out, shape.count);
    c.call();
    const bool good = right(wish.collective, c, out, shape);
    if (!good)
      return std::fprintf(stderr, "%s of %zu bytes: wrong values on rank %d\n", wish.collective.c_str(), bytes,
                          c.rank()),
             1;
    c.call();
    const double us = time_us(c, calls_of(bytes, c.ranks(), wish.budget));
    if (c.rank() == 0) std::printf("%zu %.4f\n", bytes, us), std::fflush(stdout);
  }
  return 0;
}

}  // namespace tutti::perf::compare
