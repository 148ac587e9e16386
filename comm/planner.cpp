#include "comm/planner.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/log.h"

namespace tutti::comm {
namespace {

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> out;
  while (true) {
    const std::size_t at = text.find(separator);
    out.push_back(text.substr(0, at));
    if (at == std::string_view::npos) return out;
    text.remove_prefix(at + 1);
  }
}

Status bad_rule(std::string_view rule, const std::string& why) {
  return Status(Code::invalid_argument,
                fmt::format("TUTTI_ALGO: rule '{}': {}; wanted [collective:]algorithm[:from-to], e.g. all_reduce:tree:32K-1M", rule, why));
}

// "32K-1M", "-32K", "1M-"
Status parse_range(std::string_view text, std::string_view whole, Planner::Rule& rule) {
  const std::size_t dash = text.find('-');
  if (dash == std::string_view::npos) return bad_rule(whole, fmt::format("'{}' is no range", text));
  const std::string_view from = text.substr(0, dash), to = text.substr(dash + 1);
  for (auto [part, target] : {std::pair{from, &rule.from}, std::pair{to, &rule.to}}) {
    if (part.empty()) continue;
    auto bytes = parse_bytes(part);
    if (!bytes) return bad_rule(whole, bytes.status().text());
    *target = *bytes;
  }
  return rule.from < rule.to ? Status() : bad_rule(whole, "an empty range");
}

std::string known_names() {
  std::string out;
  for (const auto* g : algorithms::generators()) out += (out.empty() ? "" : ", ") + std::string(g->name());
  return out;
}

void add_threshold(std::vector<Planner::Rule>& rules, const std::optional<ByteCount>& bytes, const char* name, const char* variable, bool up_to) {
  if (!bytes) return;
  Planner::Rule rule;
  rule.collective = Collective::all_reduce;
  rule.any_collective = false;
  rule.algorithm = name;
  if (up_to) rule.to = *bytes;
  else rule.from = *bytes;
  rule.text = fmt::format("{}={}", variable, to_text(*bytes));
  if (rule.from < rule.to) rules.push_back(std::move(rule));
}

}  // namespace

Result<std::vector<Planner::Rule>> Planner::parse_rules(const Settings& settings) {
  std::vector<Rule> rules;
  bool any = true;
  Collective current = Collective::all_reduce;
  for (std::string_view text : settings.algo.empty() ? std::vector<std::string_view>{} : split(settings.algo, ',')) {
    std::vector<std::string_view> parts = split(text, ':');
    Rule rule;
    rule.text = fmt::format("TUTTI_ALGO={}", text);
    if (!parts[0].empty() && parts[0][0] == '^') {
      rule.exclude = true;
      parts[0].remove_prefix(1);
    }
    if (auto what = collective_from(parts[0])) {
      current = *what;
      any = false;
      parts.erase(parts.begin());
    }
    rule.collective = current;
    rule.any_collective = any;
    if (parts.empty() || parts.size() > 2) return bad_rule(text, "too few or too many parts");
    rule.algorithm = parts[0];
    if (!algorithms::find_generator(rule.algorithm))
      return bad_rule(text, fmt::format("no algorithm is called '{}' (there are {})", rule.algorithm, known_names()));
    if (parts.size() == 2)
      if (Status status = parse_range(parts[1], text, rule); !status.ok()) return status;
    rules.push_back(std::move(rule));
  }
  add_threshold(rules, settings.direct_threshold, "direct", "TUTTI_DIRECT_THRESHOLD", true);
  add_threshold(rules, settings.tree_threshold, "tree", "TUTTI_TREE_THRESHOLD", true);
  add_threshold(rules, settings.ring_threshold, "ring", "TUTTI_RING_THRESHOLD", false);
  return rules;
}

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

Result<std::vector<Plan>> Planner::plans(const Question& q) {
  std::vector<Plan> out;
  const Collective what = q.request.collective;
  const auto applies = [&](const Rule& r) { return (r.any_collective || r.collective == what) && r.from <= q.bytes && q.bytes < r.to; };
  const auto suits = [&](const algorithms::Generator& g) {
    return g.refusal(q.request).empty() && (q.uniform || what != Collective::all_to_all || g.name() == "direct" || g.name() == "pairwise");
  };
  for (const Rule& rule : rules_) {
    if (rule.exclude || !applies(rule) || q.request.rank_count == 1) continue;
    const auto* g = algorithms::find_generator(rule.algorithm);
    if (!suits(*g)) {
      const std::string why = fmt::format("{} cannot be obeyed for {} among {} ranks: {}", rule.text, name_of(what), q.request.rank_count,
                                          g->refusal(q.request).empty() ? "it needs blocks of one size" : g->refusal(q.request));
      if (!rule.any_collective) return Status(Code::invalid_argument, why);
      log::write_once(log::Level::info, why);
      continue;
    }
    if (canonical_ && !g->canonical(q.request))
      return Status(Code::invalid_argument,
                    fmt::format("{} cannot be obeyed with TUTTI_ORDER=canonical: {} does not add in the canonical order for {} among {} ranks",
                                rule.text, rule.algorithm, name_of(what), q.request.rank_count));
    out.push_back({g, seconds(card(*g, q.request), q.bytes), rule.text});
    return out;
  }
  for (const auto* g : algorithms::generators()) {
    if (!suits(*g) || (canonical_ && !g->canonical(q.request))) continue;
    const bool excluded = std::any_of(rules_.begin(), rules_.end(), [&](const Rule& r) { return r.exclude && applies(r) && r.algorithm == g->name(); });
    if (!excluded) out.push_back({g, seconds(card(*g, q.request), q.bytes), "lowest predicted time"});
  }
  std::stable_sort(out.begin(), out.end(), [](const Plan& a, const Plan& b) { return a.seconds < b.seconds; });
  if (out.empty())
    return Status(Code::unsupported, fmt::format("no algorithm is left for {} among {} ranks{}", name_of(what), q.request.rank_count,
                                                 canonical_ ? " with TUTTI_ORDER=canonical" : ""));
  return out;
}

}  // namespace tutti::comm
