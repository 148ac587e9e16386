#include "perf/compare/match.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "perf/driver/median.h"
#include "perf/driver/plot.h"

namespace tutti::perf::compare {

namespace {

void compare_rounds(Point& point, const Rounds& ours, const Rounds& theirs) {
  std::vector<double> ratios;
  for (std::size_t i = 0; i < std::min(ours.size(), theirs.size()); ++i) ratios.push_back(theirs[i] / ours[i]);
  point.ratio = median(ratios);
  if (ratios.empty()) return;
  std::sort(ratios.begin(), ratios.end());
  const std::size_t cut = ratios.size() / 5;
  point.least = ratios[cut];
  point.most = ratios[ratios.size() - 1 - cut];
}

}  // namespace

std::vector<Point> judge(const Times& times, const std::string& ours, const std::vector<std::string>& peers) {
  std::vector<Point> out;
  const auto mine = times.find(ours);
  if (mine == times.end()) return out;
  for (const auto& [bytes, rounds] : mine->second) {
    Point point;
    point.bytes = bytes;
    for (const auto& [name, sizes] : times)
      if (const auto at = sizes.find(bytes); at != sizes.end()) point.median[name] = median(at->second);
    for (const std::string& peer : peers) {
      const auto at = point.median.find(peer);
      if (at != point.median.end() && (point.best_peer.empty() || at->second < point.median[point.best_peer]))
        point.best_peer = peer;
    }
    if (!point.best_peer.empty()) compare_rounds(point, rounds, times.at(point.best_peer).at(bytes));
    out.push_back(std::move(point));
  }
  return out;
}

double geometric_mean(const std::vector<Point>& points) {
  double sum = 0;
  int count = 0;
  for (const Point& p : points)
    if (p.ratio > 0) sum += std::log(p.ratio), ++count;
  return count == 0 ? 0 : std::exp(sum / count);
}

double bus_bandwidth(const Field& field, std::size_t bytes, double us) {
  const double n = field.ranks, algorithm = us > 0 ? double(bytes) / us / 1e3 : 0;
  if (field.collective == "all_reduce") return algorithm * 2 * (n - 1) / n;
  if (field.collective == "all_gather" || field.collective == "reduce_scatter") return algorithm * (n - 1) / n;
  return algorithm;
}

std::string to_table(const Field& field, const std::vector<Point>& points, const std::vector<std::string>& columns) {
  std::string out =
      fmt::format("\n## {}, {} ranks, {} (microseconds, medians; x: the best peer's time / ours)\n\n|{:>8} |",
                  field.collective, field.ranks, field.transport, "size");
  for (const std::string& c : columns) out += fmt::format("{:>11} |", c);
  out += fmt::format("{:>7} |{:>15} |\n|{:->8}:|", "x", "rounds", "");
  for (std::size_t i = 0; i < columns.size(); ++i) out += fmt::format("{:->11}:|", "");
  out += fmt::format("{:->7}:|{:->15}:|\n", "", "");
  for (const Point& p : points) {
    out += fmt::format("|{:>8} |", size_label(double(p.bytes)));
    for (const std::string& c : columns) {
      const auto at = p.median.find(c);
      out += at == p.median.end() ? fmt::format("{:>11} |", "-") : fmt::format("{:>11.2f} |", at->second);
    }
    out += p.ratio > 0 ? fmt::format("{:>7.2f} |{:>15} |\n", p.ratio, fmt::format("{:.2f} to {:.2f}", p.least, p.most))
                       : fmt::format("{:>7} |{:>15} |\n", "-", "-");
  }
  if (const double mean = geometric_mean(points); mean > 0) out += fmt::format("\ngeometric mean of x: {:.2f}\n", mean);
  return out;
}

std::string csv_head(const std::vector<std::string>& columns) {
  std::string out = "transport,collective,ranks,bytes";
  for (const std::string& c : columns) out += "," + c + "_us";
  return out + ",best_peer,ratio,ratio_low,ratio_high\n";
}

std::string to_csv(const Field& field, const std::vector<Point>& points, const std::vector<std::string>& columns) {
  std::string out;
  for (const Point& p : points) {
    out += fmt::format("{},{},{},{}", field.transport, field.collective, field.ranks, p.bytes);
    for (const std::string& c : columns) {
      const auto at = p.median.find(c);
      out += at == p.median.end() ? "," : fmt::format(",{:.4f}", at->second);
    }
    out += fmt::format(",{},{:.4f},{:.4f},{:.4f}\n", p.best_peer, p.ratio, p.least, p.most);
  }
  return out;
}

}  // namespace tutti::perf::compare
