#include "comm/circle.h"

#include <algorithm>

#include "comm/member.h"

namespace tutti::comm {

using Clock = std::chrono::steady_clock;

Circle::Circle(const Member& world, std::uint32_t id, const std::vector<int>& ranks,
               std::vector<std::vector<int>> levels, Planner planner, std::size_t most_bytes)
    : in_(most_bytes / sizeof(float)), out_(in_.size()) {
  std::vector<int> world_ranks;
  for (const int r : ranks) world_ranks.push_back(world.world_rank(r));
  const int at = int(std::find(ranks.begin(), ranks.end(), world.rank()) - ranks.begin());
  const auto held = world.engine()->lock();
  member_ =
      std::make_shared<Member>(world.engine(), id, std::move(world_ranks), at, std::move(levels), std::move(planner));
  world.engine()->add_member(member_);
}

Circle::~Circle() { member_->destroy(std::chrono::milliseconds(0)); }

template <class MakeCall>
Status Circle::time_calls(const MakeCall& make, int operations, std::vector<double>& samples) {
  const auto start = Clock::now();
  for (int i = 0; i < operations; ++i) {
    auto call = prepare(make(), {member_->rank(), member_->rank_count()});
    if (Status status = call ? member_->start(std::move(*call)).wait() : call.status(); !status) return status;
  }
  samples.push_back(seconds_since(start) / operations);
  return {};
}

Status Circle::time(std::uint64_t bytes, int operations, std::vector<double>& samples) {
  return time_calls([&] { return AllReduce{in_.data(), out_.data(), bytes / sizeof(float), DataType::f32, ReduceOp::sum}; }, operations, samples);
}

Status Circle::time_gather(std::uint64_t bytes, int operations, std::vector<double>& samples) {
  const std::size_t part = bytes / sizeof(float) / std::size_t(member_->rank_count());
  return time_calls([&] { return AllGather{in_.data(), out_.data(), part, DataType::f32}; }, operations, samples);
}

void Circle::set_prices(const Prices& prices) { member_->set_prices(prices); }

Status Circle::slowest(std::span<double> seconds) {
  const std::vector<double> own(seconds.begin(), seconds.end());
  auto call = prepare(AllReduce{own.data(), seconds.data(), seconds.size(), DataType::f64, ReduceOp::max},
                      {member_->rank(), member_->rank_count()});
  return call ? member_->start(std::move(*call)).wait() : call.status();
}

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

double at_share(std::vector<double> samples, double share) {
  const auto at = samples.begin() + std::ptrdiff_t(double(samples.size()) * share);
  std::nth_element(samples.begin(), at, samples.end());
  return *at;
}

Rule all_gather_rule(std::string_view algorithm) {
  Rule out;
  out.any_collective = false;
  out.collective = Collective::all_gather;
  out.algorithm = algorithm;
  return out;
}

Rule all_reduce_rule(std::string_view algorithm, std::uint64_t from, std::uint64_t to) {
  Rule out;
  out.any_collective = false;
  out.algorithm = algorithm;
  out.from = from;
  out.to = to;
  return out;
}

}  // namespace tutti::comm
