#include "perf/driver/benchmark.h"

namespace tutti::perf {

std::size_t whole_count(std::size_t elements, std::size_t, int) { return elements; }

std::size_t block_count(std::size_t elements, std::size_t element_bytes, int rank_count) {
  const std::size_t unit = 16 / element_bytes;
  return elements / std::size_t(rank_count) / unit * unit;
}

double factor_one(int) { return 1.0; }
double factor_share(int rank_count) { return double(rank_count - 1) / rank_count; }
double factor_twice_share(int rank_count) { return 2.0 * (rank_count - 1) / rank_count; }

}  // namespace tutti::perf
