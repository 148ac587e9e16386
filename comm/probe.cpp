#include "comm/probe.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <map>
#include <numeric>
#include <span>

#include "algorithms/generate.h"
#include "comm/circle.h"
#include "comm/crowding.h"
#include "comm/member.h"
#include "kernels/kernels.h"

namespace tutti::comm {
namespace {

using Clock = std::chrono::steady_clock;

// Real schedules are timed, so that the figures are those which the planner's model needs: two of few bytes that differ
// in hops and messages, and a large one. By size they are told apart.
constexpr std::uint64_t kDirectBytes = 8, kRoundsBytes = 16, kLargeBytes = 512 << 10;
constexpr int kSmallOperations = 20, kLargeOperations = 2;    // of one kind in a round
constexpr double kBudget = 0.15;                             // seconds, for each of the two kinds of link
constexpr double kTrialBudget = 0.03, kTurn = 0.001;  // seconds, for each size that is tried; for one algorithm's turn
constexpr std::size_t kLeastRounds = 3;
constexpr std::size_t kMostProbed = 64;  // ranks of a host: each connects with every other for it, which 256 do for a minute
// Messages that are lent and not lent in turn, and how much quicker lending has to be (SegmentHeader::lend).
constexpr std::uint64_t kLentSizes[] = {32 << 10, 128 << 10, 512 << 10}, kMostGathered = 4 << 20;
constexpr int kGathers = 5;                                  // in a row
constexpr double kLendingGain = 1.1, kLendingBudget = 0.01;      // seconds, for each of these sizes
constexpr std::size_t kCachedFloats = 4 << 10, kMemoryFloats = 1 << 20;   // 16 KiB; 4 MiB
constexpr int kCachedReductions = 64, kMemoryReductions = 3, kReductionRounds = 7;

double median(std::vector<double> samples) { return at_share(std::move(samples), 0.5); }
// Of times so long that other programs cut into most of them on a busy machine.
double lower_quartile(std::vector<double> samples) { return at_share(std::move(samples), 0.25); }

bool can_probe(const std::vector<int>& ranks_of_a_host) { return ranks_of_a_host.size() > 1 && ranks_of_a_host.size() <= kMostProbed; }

std::map<std::uint64_t, std::vector<int>> hosts_of(const std::vector<RankInfo>& ranks) {
  std::map<std::uint64_t, std::vector<int>> hosts;
  for (std::size_t r = 0; r < ranks.size(); ++r) hosts[ranks[r].host_identity].push_back(int(r));
  return hosts;
}

// Two algorithms of few bytes and a large one among some ranks, and what their times say of the links.
class LinkProbe {
 public:
  // `prices`: assumed.
  LinkProbe(const Member& world, std::uint32_t id, const std::vector<int>& ranks, const Prices& prices);
  Status measure(double gamma, double crowding, LinkFigures& out);

 private:
  struct Samples {
    std::vector<double> direct, rounds, large;
  };
  Status round(Samples& samples);
  LinkFigures solve(const Samples& samples, double gamma, double crowding);
  Planner::Card card(const char* algorithm) { return planner_.card(*algorithms::find_generator(algorithm), request_); }

  algorithms::Request request_;
  const char* in_rounds_;        // an algorithm of one message a hop
  Planner planner_;
  Circle circle_;
};

LinkProbe::LinkProbe(const Member& world, std::uint32_t id, const std::vector<int>& ranks, const Prices& prices)
    : request_{Collective::all_reduce, int(ranks.size()), 0, false, {}},
      in_rounds_(algorithms::find_generator("recursive_doubling")->refusal(request_).empty() ? "recursive_doubling"
                                                                                             : "circulant"),
      planner_({rule_of(Collective::all_reduce, "direct", 0, kRoundsBytes), rule_of(Collective::all_reduce, in_rounds_, kRoundsBytes, 1024),
                rule_of(Collective::all_reduce, "two_shot", 1024)},
               false, prices),
      circle_(world, id, ranks, {}, planner_.fresh(), kLargeBytes) {}

Status LinkProbe::round(Samples& samples) {
  if (Status s = circle_.time(Collective::all_reduce, kDirectBytes, kSmallOperations, samples.direct); !s) return s;
  if (Status s = circle_.time(Collective::all_reduce, kRoundsBytes, kSmallOperations, samples.rounds); !s) return s;
  return circle_.time(Collective::all_reduce, kLargeBytes, kLargeOperations, samples.large);
}

// For as long as the budget lasts, on the slowest rank's clock. So quick rounds count more than slow ones: after a
// start the kernel needs a while to give each rank a core of its own.
Status LinkProbe::measure(double gamma, double crowding, LinkFigures& out) {
  Samples samples;
  if (Status s = round(samples); !s) return s;       // connects
  samples = {};
  const auto start = Clock::now();
  for (double spent = 0; spent < kBudget || samples.large.size() < kLeastRounds;) {
    if (Status s = round(samples); !s) return s;
    spent = seconds_since(start);
    if (Status s = circle_.slowest({&spent, 1}); !s) return s;
  }
  out = bounded(solve(samples, gamma, crowding));
  return {};
}

// The planner's model, backwards.
LinkFigures LinkProbe::solve(const Samples& samples, double gamma, double crowding) {
  const Planner::Card direct = card("direct"), rounds = card(in_rounds_), large = card("two_shot");
  const double t_direct = median(samples.direct) / crowding, t_rounds = median(samples.rounds) / crowding,
               t_large = (crowding > 1 ? median(samples.large) : lower_quartile(samples.large)) / crowding;
  const BorderPrice& assumed = planner_.prices().borders.back();
  const algorithms::Border &d = direct.borders.back(), &r = rounds.borders.back(), &l = large.borders.back();
  const double determinant = double(d.hops) * r.messages - double(r.hops) * d.messages;
  LinkFigures out;
  if (determinant == 0) {                            // two ranks: only the sum shows, and only the sum matters
    const double share = assumed.message / (assumed.alpha + assumed.message);
    out.alpha = t_direct / d.hops * (1 - share);
    out.message = t_direct / d.hops * share;
  } else {
    out.alpha = (t_direct * r.messages - t_rounds * d.messages) / determinant;
    out.message = (t_rounds * d.hops - t_direct * r.hops) / determinant;
  }
  out = bounded(out);
  const double leaving = planner_.prices().shares_writes ? std::min(l.bytes, large.cost.written) : l.bytes;
  const double rest =
      t_large - l.hops * out.alpha - l.messages * out.message - double(kLargeBytes) * large.cost.reduced * gamma;
  out.beta = rest / (double(kLargeBytes) * leaving);
  return out;
}

// The smallest of kLentSizes at which lending messages gains, of those side by side at which it does: in a ring, where each message has
// one reader. As large ones as the ranks can gather in kMostGathered.
Status measure_lending(const Member& world, std::uint32_t id, const std::vector<int>& ranks, const Prices& copying, std::optional<std::uint64_t>& out) {
  Prices lending = copying;
  lending.lend_from = 0;
  const Prices* const ways[] = {&copying, &lending};
  Circle circle(world, id, ranks, {}, Planner({rule_of(Collective::all_gather, "ring")}, false, copying),
                std::min<std::uint64_t>(kMostGathered, *std::rbegin(kLentSizes) * ranks.size()));
  for (auto size = std::rbegin(kLentSizes); size != std::rend(kLentSizes); ++size) {
    if (*size * ranks.size() > kMostGathered) continue;
    std::vector<double> samples[2], first;
    const auto start = Clock::now();
    for (double spent = 0; spent < kLendingBudget || samples[0].size() < kLeastRounds;) {
      for (std::size_t way = 0; way < std::size(ways); ++way) {
        circle.set_prices(*ways[way]);
        if (Status s = circle.time(Collective::all_gather, *size * ranks.size(), 1, first); !s) return s;        // plans
        if (Status s = circle.time(Collective::all_gather, *size * ranks.size(), kGathers, samples[way]); !s) return s;
      }
      spent = seconds_since(start);
      if (Status s = circle.slowest({&spent, 1}); !s) return s;
    }
    double seconds[] = {median(samples[0]), median(samples[1])};
    if (Status s = circle.slowest(seconds); !s) return s;
    if (seconds[0] >= kLendingGain * seconds[1]) out = *size;
    else if (out) break;
  }
  return {};
}

// One collective and size, and the candidates, best predicted first.
struct Contest {
  Collective what;
  std::uint64_t bytes;
  std::vector<Plan> candidates;
};

// The candidates take turns until the contest's share of time is spent.
Status try_size(Circle& circle, const Contest& contest, std::vector<Trial>& out) {
  const auto& [what, bytes, candidates] = contest;
  const double predicted = candidates.front().seconds;
  const int operations = std::clamp(int(kTurn / predicted), 1, kSmallOperations);
  std::vector<std::vector<double>> samples(candidates.size());
  const auto start = Clock::now();
  double spent = 0;
  for (std::size_t rounds = 0; spent < kTrialBudget || rounds < kLeastRounds; ++rounds) {
    for (std::size_t i = 0; i < candidates.size(); ++i)
      if (Status s = circle.time(what, bytes + i * sizeof(float), operations, samples[i]); !s) return s;
    spent = seconds_since(start);
    if (Status s = circle.slowest({&spent, 1}); !s) return s;
  }
  std::vector<double> seconds;
  for (const auto& of_one : samples) seconds.push_back(median(of_one));
  if (Status s = circle.slowest(seconds); !s) return s;
  for (std::size_t i = 0; i < candidates.size(); ++i)
    out.push_back({std::string(candidates[i].generator->name()), bytes, seconds[i], what});
  return {};
}

}  // namespace

// What is predicted to take too long for its share of time is left to the model.
Result<Trials> try_candidates(const Member& member, const Prices& prices) {
  std::vector<int> ranks(std::size_t(member.rank_count()));
  std::iota(ranks.begin(), ranks.end(), 0);
  Planner planner({}, false, prices);
  std::vector<Rule> rules;
  std::vector<Contest> contests;
  Question question;
  for (const Collective what : kTried)
    for (const std::uint64_t bytes : kTrialSizes) {
      question.request = {what, int(ranks.size()), 0, what == Collective::broadcast, member.levels()};
      question.bytes = bytes;
      auto plans = planner.plans(question);
      if (!plans) return plans.status();
      std::erase_if(*plans,
                    [limit = plans->front().seconds * trial_nearness(what, prices.shares_writes)](const Plan& plan) { return plan.seconds > limit; });
      // Two ranks make one schedule of two_shot, ring and others: one speaks for all.
      if (ranks.size() == 2)
        plans->erase(std::unique(plans->begin(), plans->end(), [](const Plan& a, const Plan& b) { return a.seconds == b.seconds; }), plans->end());
      plans->resize(std::min(plans->size(), kMostTried));
      if (plans->size() < 2 || plans->back().seconds * double(plans->size() * kLeastRounds) > 2 * kTrialBudget) continue;
      for (std::size_t i = 0; i < plans->size(); ++i) {
        const std::uint64_t own = bytes + i * sizeof(float);      // by size the circle tells them apart
        rules.push_back(rule_of(what, (*plans)[i].generator->name(), own, own + 1));
      }
      contests.push_back({what, bytes, std::move(*plans)});
    }
  Trials out;
  out.ranks = int(ranks.size());
  out.shape = shape_of(member.levels());
  Circle circle(member, member.id() + 3, ranks, member.levels(), Planner(std::move(rules), false, prices),
                *std::rbegin(kTrialSizes) + kMostTried * sizeof(float));
  for (const Contest& contest : contests)
    if (Status s = try_size(circle, contest, out.times); !s) return s;
  return out;
}

namespace {

// Seconds for each byte of operands.
double reduction_seconds(std::vector<float>& a, const std::vector<float>& b, std::size_t floats, int times) {
  const std::array<const std::byte*, 2> operands = {reinterpret_cast<const std::byte*>(a.data()),
                                                    reinterpret_cast<const std::byte*>(b.data())};
  std::vector<double> samples;
  for (int round = 0; round < kReductionRounds; ++round) {
    const auto start = Clock::now();
    for (int i = 0; i < times; ++i)
      kernels::reduce(DataType::f32, ReduceOp::sum, reinterpret_cast<std::byte*>(a.data()), operands, floats);
    samples.push_back(seconds_since(start) / times);
  }
  return *std::min_element(samples.begin(), samples.end()) /
         (2.0 * double(floats) * sizeof(float));  // a core's own speed
}

ReductionFigures reductions() {
  std::vector<float> a(kMemoryFloats, 1.0f), b(kMemoryFloats, 0.0f);
  const double memory = reduction_seconds(a, b, kMemoryFloats, kMemoryReductions);
  return bounded(ReductionFigures{reduction_seconds(a, b, kCachedFloats, kCachedReductions), memory});
}

Result<std::vector<Figures>> spread(Member& member, const Figures& own) {
  ByteWriter writer;
  encode(own, writer);
  std::vector<std::byte> mine = writer.take(), all(std::size_t(member.rank_count()) * kMaxFiguresBytes);
  mine.resize(kMaxFiguresBytes);
  auto call = prepare(AllGather{mine.data(), all.data(), kMaxFiguresBytes, DataType::u8},
                      Rank{member.rank(), member.rank_count()});
  if (!call) return call.status();
  if (Status status = member.start(std::move(*call)).wait(); !status) return status;
  std::vector<Figures> out;
  for (std::size_t r = 0; r < std::size_t(member.rank_count()); ++r) {
    ByteReader reader(std::span<const std::byte>(all).subspan(r * kMaxFiguresBytes, kMaxFiguresBytes));
    out.push_back(decode_figures(reader));
  }
  return out;
}

}  // namespace

bool have_trials(const std::vector<RankInfo>& ranks) {
  const std::uint64_t mark = ranks[0].figures.trials_mark;
  return mark != 0 &&
         std::all_of(ranks.begin(), ranks.end(), [&](const RankInfo& r) { return r.figures.trials_mark == mark; });
}

Wanted wanted_figures(const std::vector<RankInfo>& ranks, const Settings& settings) {
  Wanted wanted;
  const auto hosts = hosts_of(ranks);
  const auto crowding_of = crowding_of_hosts(ranks);
  bool network = hosts.size() < 2;
  for (const auto& [host, members] : hosts) {
    bool inside = !can_probe(members);
    for (const int r : members) {
      const RankInfo& info = ranks[std::size_t(r)];
      inside = inside || (info.figures.reduction && info.figures.link(medium_within_hosts(settings), crowding_of.at(host) > 1));
      network = network || info.figures.link(Medium::network, false);
    }
    wanted.within_hosts = wanted.within_hosts || !inside;
  }
  wanted.between_hosts = !network;
  return wanted;
}

Result<std::vector<Figures>> probe(const std::shared_ptr<Member>& member, const std::vector<RankInfo>& ranks,
                                   const Settings& settings, Wanted wanted) {
  Figures own;
  own.reduction = reductions();
  const auto hosts = hosts_of(ranks);
  const RankInfo& self = ranks[std::size_t(member->rank())];
  const std::vector<int>& neighbours = hosts.at(self.host_identity);
  const double crowding = std::max(1.0, crowding_of_hosts(ranks).at(self.host_identity)),
               gamma = own.reduction->cached;
  if (wanted.within_hosts && can_probe(neighbours)) {
    const Prices assumed = prices_of_equals(settings, crowding);
    LinkFigures& figures = own.link(medium_within_hosts(settings), crowding > 1).emplace();
    LinkProbe links(*member, member->id() + 1, neighbours, assumed);
    if (Status s = links.measure(gamma, crowding, figures); !s) return s;
    // With more ranks than cores the sender would wait for a receiver that does not run.
    if (crowding <= 1 && may_lend(settings) && !settings.cma_threshold)
      if (Status s = measure_lending(*member, member->id() + 4, neighbours, assumed, figures.lend_from); !s) return s;
  }
  std::vector<int> leaders;
  for (const auto& [host, members] : hosts) leaders.push_back(members.front());
  std::sort(leaders.begin(), leaders.end());
  if (wanted.between_hosts && neighbours.front() == member->rank()) {
    Prices prices;
    prices.borders = {kHostBorder};
    prices.shares_writes = false;
    LinkProbe links(*member, member->id() + 2, leaders, prices);
    if (Status s = links.measure(gamma, 1, own.link(Medium::network, false).emplace()); !s) return s;
  }
  return spread(*member, own);
}

}  // namespace tutti::comm
