#include "comm/rules.h"

#include <fmt/format.h>

#include <string_view>

#include "algorithms/generate.h"

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
  return Status(
      Code::invalid_argument,
      fmt::format("TUTTI_ALGO: rule '{}': {}; wanted [collective:]algorithm[:from-to], e.g. all_reduce:tree:32K-1M",
                  rule, why));
}

// "32K-1M", "-32K", "1M-"
Status parse_range(std::string_view text, std::string_view whole, Rule& rule) {
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

void add_threshold(std::vector<Rule>& rules, const std::optional<ByteCount>& bytes, const char* name,
                   const char* variable, bool up_to) {
  if (!bytes) return;
  Rule rule;
  rule.collective = Collective::all_reduce;
  rule.any_collective = false;
  rule.algorithm = name;
  if (up_to) rule.to = *bytes;
  else rule.from = *bytes;
  rule.text = fmt::format("{}={}", variable, to_text(*bytes));
  if (rule.from < rule.to) rules.push_back(std::move(rule));
}

}  // namespace

Result<std::vector<Rule>> parse_rules(const Settings& settings) {
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

}  // namespace tutti::comm
