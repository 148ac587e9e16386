#include "comm/planner.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/log.h"

namespace tutti::comm {

double Planner::border_seconds(const Card& card, std::size_t border, std::uint64_t bytes) const {
  const BorderPrice& price = prices_.borders[border];
  const algorithms::Border& crossing = card.borders[border];
  double leaving = crossing.bytes;
  if (border + 1 == card.borders.size() && prices_.shares_writes) leaving = std::min(leaving, card.cost.written);
  return crossing.hops * price.alpha + crossing.messages * price.message + double(bytes) * leaving * price.beta;
}

double Planner::seconds(const Card& card, std::uint64_t bytes) const {
  double sum = double(bytes) * card.cost.reduced * (bytes > kCachedBytes ? prices_.gamma_memory : prices_.gamma);
  for (std::size_t i = 0; i < card.borders.size(); ++i) sum += border_seconds(card, i, bytes);
  return sum * prices_.crowding;
}

std::size_t Planner::limiting_border(const Card& card, std::uint64_t bytes) const {
  std::size_t most = 0;
  for (std::size_t i = 1; i < card.borders.size(); ++i)
    if (border_seconds(card, i, bytes) > border_seconds(card, most, bytes)) most = i;
  return most;
}

const Planner::Card& Planner::card(const algorithms::Generator& generator, const algorithms::Request& request) {
  const auto key = std::tuple(&generator, request.collective, request.root, request.in_place);
  auto at = cards_.find(key);
  if (at != cards_.end()) return at->second;
  Card card{generator.cost(request), {}};
  if (request.levels.empty()) card.borders = {{card.cost.rounds, card.cost.sent, card.cost.messages}};
  else card.borders = generator.borders(request);
  return cards_.emplace(key, std::move(card)).first->second;
}

// Best first. Where a size near by was tried, times decide: of who was tried its own; of others the prediction, as
// wrong as those of the tried ones were on average.
void Planner::compare(const Question& q, std::vector<Plan>& plans) {
  const auto order = [&plans](const auto& cost) {
    std::stable_sort(plans.begin(), plans.end(), [&](const Plan& a, const Plan& b) { return cost(a) < cost(b); });
  };
  const Trials& trials = prices_.trials;
  const Collective what = q.request.collective;
  const bool like_ours = q.request.rank_count == trials.ranks && q.request.channels == 1 &&
                         shape_of(q.request.levels) == trials.shape;
  const auto tried = like_ours ? trial_size(trials, what, q.bytes) : std::nullopt;
  if (!tried) return order([](const Plan& plan) { return plan.seconds; });
  double logs = 0;
  int count = 0;
  for (Plan& plan : plans) {
    const Trial* trial = find_trial(trials, what, plan.generator->name(), *tried);
    if (!trial) continue;
    const double factor = trial->seconds / seconds(card(*plan.generator, q.request), *tried);
    plan.measured = plan.seconds * factor;
    logs += std::log(factor);
    ++count;
  }
  const double usual = count > 0 ? std::exp(logs / count) : 1;
  order([usual](const Plan& plan) { return plan.measured.value_or(plan.seconds * usual); });
  if (plans.front().measured) plans.front().reason = "lowest measured time";
}

Result<std::vector<Plan>> Planner::plans(const Question& q) {
  std::vector<Plan> out;
  const Collective what = q.request.collective;
  const auto applies = [&](const Rule& r) {
    return (r.any_collective || r.collective == what) && r.from <= q.bytes && q.bytes < r.to;
  };
  const auto suits = [&](const algorithms::Generator& g) {
    return g.refusal(q.request).empty() &&
           (q.uniform || what != Collective::all_to_all || g.name() == "direct" || g.name() == "pairwise");
  };
  for (const Rule& rule : rules_) {
    if (rule.exclude || !applies(rule) || q.request.rank_count == 1) continue;
    const auto* g = algorithms::find_generator(rule.algorithm);
    if (!suits(*g)) {
      const std::string why =
          fmt::format("{} cannot be obeyed for {} among {} ranks: {}", rule.text, name_of(what), q.request.rank_count,
                      g->refusal(q.request).empty() ? "it needs blocks of one size" : g->refusal(q.request));
      if (!rule.any_collective) return Status(Code::invalid_argument, why);
      log::write_once(log::Level::info, why);
      continue;
    }
    if (canonical_ && !g->canonical(q.request))
      return Status(Code::invalid_argument,
                    fmt::format("{} cannot be obeyed with TUTTI_ORDER=canonical: {} does not add in the canonical "
                                "order for {} among {} ranks",
                                rule.text, rule.algorithm, name_of(what), q.request.rank_count));
    out.push_back({g, seconds(card(*g, q.request), q.bytes), rule.text});
    return out;
  }
  for (const auto* g : algorithms::generators()) {
    if (!suits(*g) || (canonical_ && !g->canonical(q.request))) continue;
    const bool excluded = std::any_of(rules_.begin(), rules_.end(), [&](const Rule& r) {
      return r.exclude && applies(r) && r.algorithm == g->name();
    });
    if (!excluded) out.push_back({g, seconds(card(*g, q.request), q.bytes), "lowest predicted time"});
  }
  if (!out.empty()) compare(q, out);
  if (out.empty())
    return Status(Code::unsupported,
                  fmt::format("no algorithm is left for {} among {} ranks{}", name_of(what), q.request.rank_count,
                              canonical_ ? " with TUTTI_ORDER=canonical" : ""));
  return out;
}

}  // namespace tutti::comm
