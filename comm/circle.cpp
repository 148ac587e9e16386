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

Result<Prepared> Circle::call(Collective what, std::uint64_t bytes) {
  const Rank self{member_->rank(), member_->rank_count()};
  const std::size_t count = bytes / sizeof(float);
  if (what == Collective::broadcast) return prepare(Broadcast{out_.data(), out_.data(), count, DataType::f32}, self);
  if (what == Collective::all_gather) return prepare(AllGather{in_.data(), out_.data(), count / std::size_t(self.count), DataType::f32}, self);
  return prepare(AllReduce{in_.data(), out_.data(), count, DataType::f32, ReduceOp::sum}, self);
}

Status Circle::time(Collective what, std::uint64_t bytes, int operations, std::vector<double>& samples) {
  const auto start = Clock::now();
  for (int i = 0; i < operations; ++i) {
    auto prepared = call(what, bytes);
    if (Status status = prepared ? member_->start(std::move(*prepared)).wait() : prepared.status(); !status) return status;
  }
  samples.push_back(seconds_since(start) / operations);
  return {};
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

Rule rule_of(Collective what, std::string_view algorithm, std::uint64_t from, std::uint64_t to) {
  Rule out;
  out.any_collective = false;
  out.collective = what;
  out.algorithm = algorithm;
  out.from = from;
  out.to = to;
  return out;
}

}  // namespace tutti::comm
