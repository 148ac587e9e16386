#include "tests/gpu/stress.h"

#include <fmt/core.h>
#include <tests/gpu/gpu.h>

#include <cstring>
#include <random>

namespace tutti::gpu {
namespace {

std::vector<std::int64_t> drawn(int rank, std::size_t n, std::uint64_t seed) {
  std::mt19937_64 random(seed * 1000 + std::uint64_t(rank));
  std::vector<std::int64_t> values(n);
  for (auto& v : values) v = std::int64_t(random() >> 24);
  return values;
}

}  // namespace

// Each round: an all_reduce, a kernel that doubles, an all_reduce on the other stream, which the library must order
// itself; and the same once more in two halves.
std::string stress(Communicator& comm, int rounds) {
  const auto gpu = device();
  const Stream first, second;
  std::mt19937_64 sizes(7);
  for (int round = 0; round < rounds; ++round) {
    const std::size_t n = 1 + sizes() % (round % 5 == 0 ? 2'000'000 : 5'000);
    const std::vector<std::int64_t> mine = drawn(comm.rank(), n, std::uint64_t(round));
    const Memory a(std::as_bytes(std::span(mine))), b(n * 8);
    Work begun = comm.all_reduce(
        {.input = a.at(), .output = b.at(), .count = n, .type = DataType::i64, .stream = first.handle()});
    DeviceReduction twice;
    twice.type = DataType::i64, twice.n = 2, twice.count = n;
    twice.out = a.at(), twice.inputs[0] = twice.inputs[1] = b.at();
    if (const Status status = gpu->reduce(first.handle(), twice); !status.ok()) return status.to_string();
    Work turned = comm.all_reduce({.input = a.at(),
                                   .output = a.at(),
                                   .count = n,
                                   .type = DataType::i64,
                                   .op = ReduceOp::max,
                                   .stream = first.handle()});
    Work ended = comm.all_reduce(
        {.input = a.at(), .output = b.at(), .count = n, .type = DataType::i64, .stream = second.handle()});
    const std::size_t ranks = std::size_t(comm.rank_count()), share = n / ranks;
    const Memory part((share + 1) * 8), whole(n * 8);
    Work dealt = comm.reduce_scatter(
        {.input = a.at(), .output = part.at(), .count = share, .type = DataType::i64, .stream = second.handle()});
    Work gathered = comm.all_gather(
        {.input = part.at(), .output = whole.at(), .count = share, .type = DataType::i64, .stream = second.handle()});
    second.synchronize();
    for (Work* work : {&begun, &turned, &ended, &dealt, &gathered})
      if (const Status status = work->wait(); !status.ok())
        return fmt::format("round {}: {}", round, status.to_string());
    std::vector<std::int64_t> expected(n), got(n);
    for (int r = 0; r < comm.rank_count(); ++r) {
      const auto one = drawn(r, n, std::uint64_t(round));
      for (std::size_t i = 0; i < n; ++i) expected[i] += one[i] * 2 * comm.rank_count();
    }
    std::memcpy(got.data(), b.read_as_is(n * 8).data(), n * 8);
    const std::vector<std::byte> halves = whole.read_as_is(share * ranks * 8);
    if (std::memcmp(halves.data(), expected.data(), halves.size()) != 0)
      return fmt::format("round {}: reduce_scatter and all_gather of {} elements came out wrong", round, n);
    if (got != expected) return fmt::format("round {}: {} elements came out wrong", round, n);
  }
  return "";
}

}  // namespace tutti::gpu
