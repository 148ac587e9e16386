#pragma once
// Circle: some ranks of the world on a communicator of their own, which time operations among themselves. All of them
// do the same.
#include <chrono>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "comm/planner.h"

namespace tutti::comm {

class Member;
struct Prepared;

class Circle {
 public:
  // `levels`: of these ranks. `id`: the same on its ranks, and no other
  // communicator's. Vectors are f32, up to `most_bytes`.
  Circle(const Member& world, std::uint32_t id, const std::vector<int>& ranks, std::vector<std::vector<int>> levels,
         Planner planner, std::size_t most_bytes);
  ~Circle();
  Circle(const Circle&) = delete;
  Circle& operator=(const Circle&) = delete;

  // So many all_reduces, broadcasts from rank 0 or all_gathers in a row (`bytes`: of the whole vector); adds the seconds of one to the
  // samples. Errors as of the operation.
  Status time(Collective what, std::uint64_t bytes, int operations, std::vector<double>& samples);
  void set_prices(const Prices& prices);
  // Each becomes that of the rank where it is largest.
  Status slowest(std::span<double> seconds);

 private:
  Result<Prepared> call(Collective what, std::uint64_t bytes);
  std::shared_ptr<Member> member_;
  std::vector<float> in_, out_;
};

double seconds_since(std::chrono::steady_clock::time_point start);
double at_share(std::vector<double> samples, double share);     // 0.5: the median. At least one sample
// For from <= bytes < to.
Rule rule_of(Collective what, std::string_view algorithm, std::uint64_t from = 0, std::uint64_t to = ~std::uint64_t(0));

}  // namespace tutti::comm
