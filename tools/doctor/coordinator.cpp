#include "tools/doctor/coordinator.h"

#include <fmt/format.h>
#include <sys/random.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "core/check.h"
#include "tools/doctor/link_probe.h"

namespace tutti::tools::doctor {
namespace {

using nlohmann::json;
using std::chrono::seconds;

constexpr seconds kShort{10}, kTrialLimit{60};
constexpr double kStreamBytes = 1.25e9;  // what one connection is trusted to carry: 10 Gb/s
constexpr int kClockLooks = 5;

class Coordination {
 public:
  Coordination(std::map<int, Channel>& channels, const std::map<int, Facts>& facts, Examination& out)
      : channels_(channels), facts_(facts), out_(out) {}

  void choose_hosts();
  void compare_clocks();
  void measure_pairs();
  void read_counters();
  void try_library();
  void let_go();

 private:
  // A rank that fails once is out: its later orders are not sent.
  bool order(int rank, const json& what);
  json answer(int rank, seconds limit);
  json ask(int rank, const json& what, seconds limit) {
    return order(rank, what) ? answer(rank, limit) : json{{"error", "it is gone"}};
  }
  void lose(int rank, const Status& why);
  void run_round(const std::vector<std::pair<int, int>>& round, bool measure,
                 std::map<std::pair<int, int>, Pair>& found);
  ProbeOrder probing(int from, int to, const json& listening) const;

  std::map<int, Channel>& channels_;
  const std::map<int, Facts>& facts_;
  Examination& out_;
  std::set<int> gone_;
  std::vector<int> hosts_;  // the lowest rank of each
};

void Coordination::lose(int rank, const Status& why) {
  if (gone_.insert(rank).second) out_.missing.push_back({rank, "went away during the examination: " + why.text()});
}

bool Coordination::order(int rank, const json& what) {
  if (gone_.contains(rank)) return false;
  const Status status = channels_.at(rank).send(what, Clock::now() + kShort);
  if (!status) lose(rank, status);
  return status.ok();
}

json Coordination::answer(int rank, seconds limit) {
  if (gone_.contains(rank)) return {{"error", "it is gone"}};
  auto got = channels_.at(rank).receive(Clock::now() + limit);
  if (got) return *got;
  lose(rank, got.status());
  return {{"error", got.status().text()}};
}

void Coordination::choose_hosts() {
  std::set<std::uint64_t> seen;
  for (const auto& [rank, facts] : facts_) {
    if (!seen.insert(facts.identity).second) continue;
    hosts_.push_back(rank);
    out_.hosts.push_back(facts);
  }
}

void Coordination::compare_clocks() {
  for (const int rank : hosts_) {
    if (rank == 0) continue;
    ClockDifference best{.rank = rank, .uncertainty = 1e9};
    for (int look = 0; look < kClockLooks; ++look) {
      const double before = clock_now();
      const auto start = Clock::now();
      const json told = ask(rank, {{"do", "clock"}}, kShort);
      const double took = std::chrono::duration<double>(Clock::now() - start).count();
      if (!told.contains("clock")) break;
      if (took / 2 < best.uncertainty) best = {rank, told.value("clock", 0.0) - before - took / 2, took / 2};
    }
    if (best.uncertainty < 1e9) out_.clocks.push_back(best);
  }
}

ProbeOrder Coordination::probing(int from, int to, const json& listening) const {
  ProbeOrder out{.from = from,
                 .to = to,
                 .addresses = listening.value("addresses", std::vector<std::string>{}),
                 .port = listening.value("port", 0)};
  // Which interface the route takes is known only when connected; the chosen one's figures are what is promised.
  double slowest = 0;
  for (const int rank : {from, to}) {
    const Facts& facts = facts_.at(rank);
    const Interface* interface = facts.chosen.empty() ? nullptr : interface_of(facts, facts.chosen[0]);
    if (!interface) continue;
    (rank == from ? out.mtu : out.other_mtu) = interface->mtu;
    const double speed = double(interface->megabits) * 1e6 / 8;
    slowest = slowest == 0 ? speed : std::min(slowest, speed);
  }
  const int cores = std::min(facts_.at(from).cores, facts_.at(to).cores);
  out.streams = std::clamp(int(std::ceil(slowest / kStreamBytes)), 1, std::clamp(cores, 1, 8));
  return out;
}

void Coordination::run_round(const std::vector<std::pair<int, int>>& round, bool measure,
                             std::map<std::pair<int, int>, Pair>& found) {
  std::map<int, std::string> tokens;
  for (const auto& [from, to] : round) {
    std::string token(kTokenBytes, '\0');
    TUTTI_CHECK(getrandom(token.data(), token.size(), 0) == ssize_t(token.size()));
    tokens[to] = to_hex(token);
    order(to, {{"do", "listen"}, {"token", tokens[to]}});
  }
  std::map<int, std::string> errors;
  for (const auto& [from, to] : round) {
    const json listening = answer(to, kShort);
    ProbeOrder wanted = probing(from, to, listening);
    wanted.token = tokens[to];
    wanted.measure = measure;
    json what = wanted;
    what["do"] = "probe";
    if (listening.contains("error"))
      errors[to] = listening.value("error", "");
    else
      order(from, what);
  }
  for (const auto& [from, to] : round) {
    Pair& pair = found[{from, to}];
    const json told =
        errors.contains(to) ? json{{"error", "it could not listen: " + errors[to]}} : answer(from, kLongestProbe);
    if (const auto read = parse<Pair>(dump(told))) pair = *read;
    pair.from = from;
    pair.to = to;
  }
  for (const auto& [from, to] : round) order(to, {{"do", "close"}});
  for (const auto& [from, to] : round) answer(to, kLongestProbe);
}

void Coordination::measure_pairs() {
  for (const auto& numbers : rounds_of_pairs(int(hosts_.size()))) {
    std::vector<std::pair<int, int>> round, back;
    for (const auto& [a, b] : numbers) {
      round.emplace_back(hosts_[std::size_t(a)], hosts_[std::size_t(b)]);
      back.emplace_back(round.back().second, round.back().first);
    }
    std::map<std::pair<int, int>, Pair> there, here;
    run_round(round, true, there);
    run_round(back, false, here);
    for (const auto& [a, b] : round) {
      Pair pair = there[{a, b}];
      pair.back = here[{b, a}].attempts;
      out_.pairs.push_back(pair);
    }
  }
}

void Coordination::read_counters() {
  if (out_.pairs.empty()) return;
  for (const int rank : hosts_) {
    const json told = ask(rank, {{"do", "counters"}}, kShort);
    for (const json& item : told.value("interfaces", json::array())) {
      const auto now = parse<Interface>(dump(item));
      if (!now) continue;
      for (const Interface& then : facts_.at(rank).interfaces) {
        if (then.name != now->name || now->packets <= then.packets) continue;      // or it was made anew meanwhile
        const auto grown = [](std::uint64_t before, std::uint64_t after) {
          return after > before ? after - before : 0;
        };
        out_.growth.push_back({rank, then.name, now->packets - then.packets, grown(then.errors, now->errors),
                               grown(then.dropped, now->dropped)});
      }
    }
  }
}

void Coordination::try_library() {
  // Where a pair is broken the library would only wait for its limits, and say the same.
  const bool whole =
      std::all_of(out_.pairs.begin(), out_.pairs.end(), [](const Pair& pair) { return pair.large_passed; });
  if (!whole || !gone_.empty() || int(channels_.size()) < out_.rank_count) return;
  const json named = ask(0, {{"do", "name"}}, kShort);
  Trial all{.what = fmt::format("all {} ranks", out_.rank_count), .error = named.value("error", "")};
  if (all.error.empty()) {
    const json joining = {{"do", "join"}, {"id", named.value("id", "")}, {"rank_count", out_.rank_count}};
    for (const auto& [rank, channel] : channels_) order(rank, joining);
    for (const auto& [rank, channel] : channels_) {
      const json told = answer(rank, kTrialLimit);
      const auto trial = parse<Trial>(dump(told));
      if (!trial) continue;
      if (rank == 0) all.transport = trial->transport, all.milliseconds = trial->milliseconds;
      if (all.error.empty() && !trial->error.empty()) all.error = fmt::format("rank {}: {}", rank, trial->error);
    }
  }
  out_.trials.push_back(all);
}

void Coordination::let_go() {
  for (const auto& [rank, channel] : channels_) order(rank, {{"do", "end"}});
}

}  // namespace

std::vector<std::vector<std::pair<int, int>>> rounds_of_pairs(int count) {
  std::vector<std::vector<std::pair<int, int>>> rounds;
  const int seats = count + count % 2;  // one stays free when the count is odd
  for (int round = 0; round + 1 < seats; ++round) {
    rounds.emplace_back();
    for (int i = 0; i < seats / 2; ++i) {
      const auto player = [&](int seat) { return seat == seats - 1 ? seats - 1 : (round + seat) % (seats - 1); };
      const int a = player(i == 0 ? seats - 1 : i), b = player(i == 0 ? 0 : seats - 1 - i);
      if (std::max(a, b) < count) rounds.back().emplace_back(std::min(a, b), std::max(a, b));
    }
  }
  return rounds;
}

void coordinate(std::map<int, Channel>& channels, const std::map<int, Facts>& facts, Examination& examination) {
  Coordination work(channels, facts, examination);
  work.choose_hosts();
  work.compare_clocks();
  work.measure_pairs();
  work.read_counters();
  work.try_library();
  work.let_go();
}

}  // namespace tutti::tools::doctor
