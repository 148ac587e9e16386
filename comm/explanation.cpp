#include "comm/explanation.h"

#include <fmt/format.h>

#include <algorithm>

#include "comm/lending.h"
#include "core/device.h"

namespace tutti::comm {
namespace {

Explanation::Candidate candidate_of(const Plan& plan, Planner& planner, const Question& question, const std::vector<std::size_t>& shown) {
  const Planner::Card& card = planner.card(*plan.generator, question.request);
  Explanation::Candidate out;
  out.algorithm = plan.generator->name();
  out.steps = card.cost.rounds;
  out.bytes_on_wire = std::uint64_t(card.cost.sent * double(question.bytes) + 0.5);
  for (const std::size_t border : shown) out.hops.push_back(card.borders[border].hops);
  out.slow_link_hops = shown.empty() ? 0 : card.borders[shown.front()].hops;
  out.predicted_us = plan.seconds * 1e6;
  if (plan.measured) out.measured_us = *plan.measured * 1e6;
  out.limiting_border = planner.prices().borders[planner.limiting_border(card, question.bytes)].name;
  out.same_bits = plan.generator->same_bits(question.request);
  out.canonical = plan.generator->canonical(question.request);
  return out;
}

// Borders with groups on either side.
std::vector<std::size_t> borders_that_divide(const Question& question) {
  std::vector<std::size_t> out;
  const auto& levels = question.request.levels;
  std::vector<int> around(std::size_t(question.request.rank_count), 0);
  for (std::size_t level = 0; level < levels.size(); ++level) {
    const auto groups = [](const std::vector<int>& of) { return *std::max_element(of.begin(), of.end()) + 1; };
    if (groups(levels[level]) > groups(around)) out.push_back(level);
    around = levels[level];
  }
  const int innermost = *std::max_element(around.begin(), around.end()) + 1;
  if (innermost < question.request.rank_count) out.push_back(levels.size());
  return out;
}

std::string reason_of(const std::vector<Plan>& plans, const std::vector<Explanation::Candidate>& candidates) {
  const Plan& best = plans.front();
  if (best.reason.starts_with("TUTTI_")) return best.reason;
  if (plans.size() == 1) return "the only one left";
  const Explanation::Candidate &first = candidates[0], &next = candidates[1];
  const bool tried = first.measured_us && next.measured_us;
  const double share = tried ? *first.measured_us / *next.measured_us : first.predicted_us / next.predicted_us;
  std::string why = fmt::format("{}, {:.0f} % less than {}", best.reason, 100 * (1 - share), next.algorithm);
  if (first.slow_link_hops < next.slow_link_hops) why += fmt::format("; {} hops over the slowest border instead of {}", first.slow_link_hops, next.slow_link_hops);
  else if (first.steps < next.steps) why += fmt::format("; {} steps instead of {}", first.steps, next.steps);
  else if (first.bytes_on_wire < next.bytes_on_wire) why += "; fewer bytes on the wire";
  return why;
}

void add_gpu_plans(Explanation& to, const Settings& settings) {
  const auto& first = to.candidates.front();
  GpuQuestion question{to.collective, to.bytes, to.ranks, first.measured_us.value_or(first.predicted_us) / 1e6, to.reason.starts_with("TUTTI_")};
  to.gpu = gpu_plans(question, settings);
  for (question.bytes = 1; question.bytes <= std::uint64_t(1) << 40; question.bytes *= 2)
    if (gpu_plans(question, settings).front().way == GpuWay::one_shot) to.one_shot_up_to = question.bytes;
}

}  // namespace

Result<Explanation> explain(Collective collective, std::uint64_t bytes, int ranks, const Placement& placement, const Settings& settings, bool gpus) {
  auto rules = parse_rules(settings);
  if (!rules) return rules.status();
  const bool canonical = settings.order == "canonical";
  Planner planner(std::move(*rules), canonical, placement.prices);
  Question question;
  question.request = request_on(placement, collective, ranks, settings);
  question.bytes = bytes;
  auto plans = planner.plans(question);
  if (!plans) return plans.status();
  Explanation out;
  out.collective = collective;
  out.bytes = bytes;
  out.ranks = ranks;
  const std::vector<std::size_t> shown = borders_that_divide(question);
  for (const std::size_t border : shown) {
    out.borders.push_back(placement.prices.borders[border].name);
    out.measured.push_back(placement.prices.borders[border].measured);
  }
  for (const Plan& plan : *plans) out.candidates.push_back(candidate_of(plan, planner, question, shown));
  out.reason = reason_of(*plans, out.candidates);
  out.limiting_link = out.candidates[0].limiting_border;
  if (ranks > 1 && !algorithms::is_reduction(collective)) out.lend_from = lending_pays_from(settings, placement.prices);
  if (gpus && ranks > 1 && ranks <= SharedExchange::kMostRanks && settings.p2p != "0")
    add_gpu_plans(out, settings);
  for (const auto* g : algorithms::generators()) {
    const std::string_view why = g->refusal(question.request);
    if (!why.empty()) out.refused.push_back(fmt::format("{}: {}", g->name(), why));
    else if (canonical && !g->canonical(question.request)) out.refused.push_back(fmt::format("{}: does not add in the canonical order", g->name()));
  }
  return out;
}

}  // namespace tutti::comm
