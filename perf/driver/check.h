#pragma once
// Fills buffers with the inputs of a Recipe and compares what came out with what was expected.
#include <cstddef>
#include <map>
#include <optional>

#include "perf/driver/benchmark.h"
#include "perf/driver/inputs.h"

namespace tutti::perf {

struct Verdict {
  std::size_t wrong = 0;        // elements
  double error_over_bound = 0;  // the largest; stays 0 for values that are compared bit by bit
  void add(const Verdict& other);
};

// Keeps the patterns of one Recipe, so that a sweep makes them once.
class Checker {
 public:
  explicit Checker(Recipe recipe) : recipe_(recipe) {}

  // at[i] = this rank's input[from + i], i < count.
  void fill(std::byte* at, int rank, std::size_t from, std::size_t count);
  // Compares at[i] with element from + i of a rank's input, or of the reduction for source kReduced.
  Verdict compare(const std::byte* at, int source, std::size_t from, std::size_t count);
  // All pieces of an output.
  Verdict compare(const std::byte* output, const Shape& shape);

 private:
  const std::vector<std::byte>& inputs(int rank, std::size_t count);
  const Expected& expected(std::size_t count);

  Recipe recipe_;
  std::map<int, std::vector<std::byte>> inputs_;
  std::optional<Expected> expected_;
};

}  // namespace tutti::perf
