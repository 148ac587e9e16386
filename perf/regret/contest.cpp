#include "perf/regret/contest.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <numeric>
#include <utility>

#include "algorithms/generate.h"
#include "comm/join.h"
#include "comm/member.h"
#include "perf/driver/median.h"

namespace tutti::perf::regret {
namespace {

using Clock = std::chrono::steady_clock;
constexpr double kBatchUs = 3000;       // of iterations timed together
constexpr double kMostIterations = 300;
constexpr double kNoWarmUpUs = 30000;   // an operation that long warms itself
constexpr int kTrialRounds = 2;         // after which what is hopeless is given up
constexpr double kHopeless = 2.5;       // times the best

struct Candidate {
  std::string algorithm;
  std::shared_ptr<comm::Member> ranks;
  std::vector<double> us;
  bool given_up = false;
};

class Contest {
 public:
  explicit Contest(const Seat& seat) : seat_(seat) {}

  ~Contest() {
    for (Candidate& c : candidates_) c.ranks->destroy(std::chrono::milliseconds(0));
    if (world_) world_->destroy(std::chrono::seconds(10));
  }

  Status join() {
    setenv("TUTTI_TRANSPORT", seat_.transport.c_str(), 1);
    Options options;
    options.job_key = seat_.key;
    auto joined = seat_.address.empty() ? comm::join_from_environment(options)
                                        : comm::join_at(seat_.rank, seat_.ranks, seat_.address, options);
    if (!joined) return joined.status();
    world_ = std::move(joined).value();
    request_.rank_count = seat_.ranks;
    request_.levels = world_->levels();
    for (const auto* generator : algorithms::generators()) {
      const std::string name(generator->name());
      if (generator->refusal(request_).empty() && first_alike(name) == name)
        candidates_.push_back({name, among_all(name), {}, false});
    }
    return wait(world_->barrier());
  }

  // Of algorithms that are the same program here, the first.
  std::string first_alike(const std::string& name) const {
    for (const auto* other : algorithms::generators())
      if (other->refusal(request_).empty() && alike(*other, *algorithms::find_generator(name)))
        return std::string(other->name());
    return name;
  }

  Status contest(std::size_t bytes, int rounds, Point& point) {
    const std::size_t count = bytes / sizeof(float);
    in_.assign(count, 1.0f);
    out_.assign(count, 0.0f);
    const auto explained = world_->choose(Collective::all_reduce, count, DataType::f32, ReduceOp::sum);
    if (!explained) return explained.status();
    const std::string choice = first_alike(explained->algorithm);
    for (Candidate& c : candidates_) {
      c.us.clear();
      c.given_up = false;
    }
    for (int round = 0; round < rounds; ++round) {
      for (std::size_t i = 0; i < candidates_.size(); ++i) {
        Candidate& c = candidates_[(i + std::size_t(round)) % candidates_.size()];
        if (c.given_up) continue;
        if (Status s = time(c, count); !s.ok()) return s;
      }
      if (round + 1 == kTrialRounds) give_up(choice);
    }
    point = {seat_.label, seat_.ranks, bytes, choice, {}};
    for (const Candidate& c : candidates_) point.times.push_back({c.algorithm, c.us});
    return {};
  }

 private:
  bool alike(const algorithms::Generator& a, const algorithms::Generator& b) const {
    for (int rank = 0; rank < seat_.ranks; ++rank)
      if (!(a.generate(request_, rank) == b.generate(request_, rank))) return false;
    return true;
  }

  // A communicator of all ranks that uses this algorithm only.
  std::shared_ptr<comm::Member> among_all(const std::string& algorithm) {
    comm::Rule rule;
    rule.any_collective = false;
    rule.algorithm = algorithm;
    std::vector<int> everyone(std::size_t(seat_.ranks));
    std::iota(everyone.begin(), everyone.end(), 0);
    const auto& engine = world_->engine();
    const auto held = engine->lock();
    auto made = std::make_shared<comm::Member>(
        engine, next_communicator_++, std::move(everyone), seat_.rank, world_->levels(),
        comm::Planner({rule}, false, comm::Prices{std::vector<comm::BorderPrice>(request_.levels.size() + 1)}));
    engine->add_member(made);
    return made;
  }

  static Status wait(Work work) { return work.wait(); }
  Status all_reduce(comm::Member& ranks, const AllReduce& call) {
    auto prepared = comm::prepare(call, {seat_.rank, seat_.ranks});
    return prepared ? wait(ranks.start(std::move(*prepared))) : prepared.status();
  }
  Status once(Candidate& c, std::size_t count) {
    return all_reduce(*c.ranks, {.input = in_.data(), .output = out_.data(), .count = count});
  }

  // Of the slowest rank, the same on all.
  Status batch(Candidate& c, std::size_t count, int iterations, double& us) {
    if (Status s = wait(world_->barrier()); !s.ok()) return s;
    const auto start = Clock::now();
    for (int i = 0; i < iterations; ++i)
      if (Status s = once(c, count); !s.ok()) return s;
    const double own = std::chrono::duration<double, std::micro>(Clock::now() - start).count() / iterations;
    return all_reduce(*world_, {.input = &own, .output = &us, .count = 1, .type = DataType::f64, .op = ReduceOp::max});
  }

  Status time(Candidate& c, std::size_t count) {
    double one = c.us.empty() ? 0 : c.us.back();
    if (one < kNoWarmUpUs)
      if (Status s = batch(c, count, c.us.empty() ? 3 : 1, one); !s.ok()) return s;
    double us = 0;
    if (Status s = batch(c, count, int(std::clamp(kBatchUs / std::max(one, 0.1), 1.0, kMostIterations)), us); !s.ok())
      return s;
    c.us.push_back(us);
    return {};
  }

  void give_up(const std::string& choice) {
    double best = median(candidates_.front().us);
    for (const Candidate& c : candidates_) best = std::min(best, median(c.us));
    for (Candidate& c : candidates_)
      c.given_up = c.algorithm != choice && *std::min_element(c.us.begin(), c.us.end()) > kHopeless * best;
  }

  const Seat& seat_;
  algorithms::Request request_;
  std::shared_ptr<comm::Member> world_;
  std::uint32_t next_communicator_ = 16;     // the same on all ranks; nothing is split here
  std::vector<Candidate> candidates_;
  std::vector<float> in_, out_;
};

}  // namespace

Status run_contest(const Seat& seat, const std::vector<std::size_t>& sizes, int rounds,
                   const std::function<void(const Point&)>& on_point) {
  Contest contest(seat);
  if (Status s = contest.join(); !s.ok()) return s;
  for (const std::size_t bytes : sizes) {
    Point point;
    if (Status s = contest.contest(bytes, rounds, point); !s.ok()) return s;
    on_point(point);
  }
  return {};
}

}  // namespace tutti::perf::regret
