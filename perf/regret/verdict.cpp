#include "perf/regret/verdict.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include <fmt/format.h>

#include "perf/driver/median.h"

namespace tutti::perf::regret {
namespace {

using Json = nlohmann::ordered_json;

double median_of_rounds(const Times& times, std::size_t first) {
  std::vector<double> picked;
  for (std::size_t round = first; round < times.us.size(); round += 2) picked.push_back(times.us[round]);
  return median(std::move(picked));
}

const Times* find(const Point& point, const std::string& algorithm) {
  const auto at =
      std::find_if(point.times.begin(), point.times.end(), [&](const Times& t) { return t.algorithm == algorithm; });
  return at == point.times.end() ? nullptr : &*at;
}

std::string size_text(std::size_t bytes) {
  if (bytes >= 1u << 20) return fmt::format("{}M", bytes >> 20);
  return bytes >= 1024 ? fmt::format("{}K", bytes >> 10) : std::to_string(bytes);
}

}  // namespace

Verdict judge(const Point& point) {
  Verdict out;
  std::size_t rounds = 0;
  for (const Times& t : point.times) rounds = std::max(rounds, t.us.size());
  const Times* best = nullptr;
  for (const Times& t : point.times)
    if (t.us.size() == rounds && (!best || median_of_rounds(t, 0) < median_of_rounds(*best, 0))) best = &t;
  const Times* choice = find(point, point.choice);
  if (!best || !choice) return out;
  out.best = best->algorithm;
  out.best_us = median_of_rounds(*best, 1);
  out.choice_us = median_of_rounds(*choice, 1);
  out.ratio = best == choice || out.best_us <= 0 ? 1 : out.choice_us / out.best_us;
  return out;
}

double share_within(const std::vector<Point>& points) {
  if (points.empty()) return 1;
  const auto within =
      std::count_if(points.begin(), points.end(), [](const Point& p) { return judge(p).ratio <= kTolerance; });
  return double(within) / double(points.size());
}

std::string table_head() {
  return "| transport | ranks | size | choice | us | best | us | ratio |\n|---|---:|---:|---|---:|---|---:|---:|\n";
}

std::string table_row(const Point& p) {
  const Verdict v = judge(p);
  return fmt::format("| {} | {} | {} | {} | {:.1f} | {} | {:.1f} | {:.2f}{} |\n", p.transport, p.ranks,
                     size_text(p.bytes), p.choice, v.choice_us, v.best, v.best_us, v.ratio,
                     v.ratio > kTolerance ? " !" : "");
}

std::string details(const Point& point) {
  std::vector<Times> sorted = point.times;
  std::stable_sort(sorted.begin(), sorted.end(),
                   [](const Times& a, const Times& b) { return median(a.us) < median(b.us); });
  std::string out;
  for (const Times& t : sorted) out += fmt::format("{}{} {:.1f}", out.empty() ? "" : "  ", t.algorithm, median(t.us));
  return out;
}

std::string to_json(const Point& p) {
  const Verdict v = judge(p);
  Json times = Json::object();
  for (const Times& t : p.times) times[t.algorithm] = t.us;
  return Json{{"transport", p.transport}, {"ranks", p.ranks}, {"bytes", p.bytes},
              {"choice", p.choice},       {"best", v.best},   {"choice_us", v.choice_us},
              {"best_us", v.best_us},     {"ratio", v.ratio}, {"times_us", times}}
      .dump();
}

Point point_from_json(const std::string& text) {
  const Json json = Json::parse(text);
  Point out{json.at("transport"), json.at("ranks"), json.at("bytes"), json.at("choice"), {}};
  for (const auto& [algorithm, us] : json.at("times_us").items())
    out.times.push_back({algorithm, us.get<std::vector<double>>()});
  return out;
}

}  // namespace tutti::perf::regret
