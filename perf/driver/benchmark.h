#pragma once
// Benchmark: what the driver must know about one collective to run it, check it and put it into a table. A value, made
// once by each small program. It knows nothing of time, buffers or options.
#include <cstddef>
#include <span>
#include <string_view>
#include <vector>

#include <tutti/tutti.h>

namespace tutti::perf {

inline constexpr int kReduced = -1;  // as a piece's source: the reduction of all ranks' inputs

// Elements that an output must hold: output[at .. at+count) equals source's input[from .. from+count).
struct Piece {
  int source = kReduced;
  std::size_t from = 0, count = 0, at = 0;
};

// One call on one rank, in elements.
struct Shape {
  std::size_t input = 0, output = 0;        // what this rank passes; 0 where it reads or writes nothing
  std::size_t size = 0;                     // the table's `size`: the larger of both, on the rank that has most
  std::size_t input_at = 0, output_at = 0;  // in place: where both lie in one buffer
  std::vector<Piece> expected;
};

struct Call {
  const void* input = nullptr;  // null where Shape says 0
  void* output = nullptr;
  std::size_t count = 0;
  DataType type = DataType::f32;
  ReduceOp op = ReduceOp::sum;
  int root = 0;
  double factor = 1.0;
  DeviceStream stream;  // given: the buffers are a GPU's
};

struct Benchmark {
  std::string_view program;  // "all_reduce_perf"
  Collective what = Collective::all_reduce;
  bool reduces = false, rooted = false, in_place = true;
  // busbw / algbw for that many ranks.
  double (*bus_factor)(int rank_count) = nullptr;
  // The call's `count` for a sweep's size in elements.
  std::size_t (*count)(std::size_t elements, std::size_t element_bytes, int rank_count) = nullptr;
  Shape (*shape)(std::size_t count, int rank, int rank_count, int root) = nullptr;
  Work (*start)(Communicator& ranks, const Call& call) = nullptr;
};

// The two rules for Benchmark::count: all of it; or a rank's equal share, in whole 16 bytes (so small sizes become 0).
std::size_t whole_count(std::size_t elements, std::size_t element_bytes, int rank_count);
std::size_t block_count(std::size_t elements, std::size_t element_bytes, int rank_count);

// The three rules for Benchmark::bus_factor: 1; (n-1)/n; 2(n-1)/n.
double factor_one(int rank_count);
double factor_share(int rank_count);
double factor_twice_share(int rank_count);

// `main` of a benchmark: the exit status (docs/perf.md).
int run_program(const Benchmark& benchmark, std::span<char* const> args, char** environment);

}  // namespace tutti::perf
