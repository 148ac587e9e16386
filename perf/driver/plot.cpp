#include "perf/driver/plot.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <tuple>

#include <fmt/format.h>

namespace tutti::perf {
namespace {

constexpr double kWidth = 640, kHeight = 380;  // of the drawing area
constexpr double kLeft = 62, kTop = 54, kBottom = 54;
constexpr double kLetter = 7.2, kLine = 17;  // of a label, in units of the drawing
// Middle luminance: at least 3:1 against white and against near-black.
constexpr std::array<const char*, 8> kColours{"#2f80d8", "#d2691e", "#2a9461", "#c04a9b",
                                              "#7f6bd6", "#9a7b13", "#1b95a5", "#d14b4b"};
constexpr const char* kInk = "#7a828c";

std::string escaped(const std::string& text) {
  std::string result;
  for (char c : text) {
    if (c == '<')
      result += "&lt;";
    else if (c == '>')
      result += "&gt;";
    else if (c == '&')
      result += "&amp;";
    else if (c == '"')
      result += "&quot;";
    else
      result += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
  }
  return result;
}

// Of the drawing: log2 of bytes from left to right, GB/s from the bottom up.
struct Scale {
  int low = 3, high = 4;       // exponents of 2
  double top = 1, step = 0.2;  // GB/s
  double x(double bytes) const { return kLeft + (std::log2(bytes) - low) / (high - low) * kWidth; }
  double y(double busbw) const { return kTop + kHeight - busbw / top * kHeight; }
};

Scale scale_for(const std::vector<Series>& series) {
  double least = INFINITY, most = 0, highest = 0;
  for (const Series& s : series)
    for (const auto& [bytes, busbw] : s.points) {
      least = std::min(least, bytes);
      most = std::max(most, bytes);
      highest = std::max(highest, busbw);
    }
  Scale scale;
  if (most > 0) {
    scale.low = int(std::floor(std::log2(least)));
    scale.high = std::max(scale.low + 1, int(std::ceil(std::log2(most))));
  }
  if (highest <= 0) return scale;
  const double raw = highest / 5, power = std::pow(10, std::floor(std::log10(raw)));
  for (double factor : {1.0, 2.0, 2.5, 5.0, 10.0}) {
    scale.step = factor * power;
    if (scale.step >= raw) break;
  }
  scale.top = std::ceil(highest / scale.step * 1.0001) * scale.step;
  return scale;
}

std::string grid(const Scale& scale) {
  std::string svg;
  for (int i = 0; i * scale.step <= scale.top * 1.0001; ++i) {
    const double y = scale.y(i * scale.step);
    svg += fmt::format("<line x1='{:.1f}' y1='{:.1f}' x2='{:.1f}' y2='{:.1f}' stroke='{}' stroke-opacity='{}'/>\n",
                       kLeft, y, kLeft + kWidth, y, kInk, i ? 0.25 : 0.9);
    svg += fmt::format("<text x='{:.1f}' y='{:.1f}' text-anchor='end'>{:g}</text>\n", kLeft - 8, y + 4, i * scale.step);
  }
  // Powers of 8 (8, 64, 512, 4K, ...); all powers of 2 where these would be few.
  const bool few = scale.high - scale.low < 7;
  for (int exponent = scale.low; exponent <= scale.high; ++exponent) {
    if (!few && exponent % 3 != 0) continue;
    const double x = scale.x(std::exp2(exponent));
    svg += fmt::format("<line x1='{:.1f}' y1='{:.1f}' x2='{:.1f}' y2='{:.1f}' stroke='{}'/>\n", x, kTop + kHeight, x,
                       kTop + kHeight + 5, kInk);
    svg += fmt::format("<text x='{:.1f}' y='{:.1f}' text-anchor='middle'>{}</text>\n", x, kTop + kHeight + 20,
                       size_label(std::exp2(exponent)));
  }
  return svg;
}

// Heights for labels that want to stand at `wanted`: in the same order, kLine apart, inside of the drawing where they
// fit.
std::vector<double> spread_labels(const std::vector<double>& wanted) {
  std::vector<std::size_t> order(wanted.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return wanted[a] < wanted[b]; });
  std::vector<double> place(wanted.size());
  double bottom = kTop + kHeight;
  for (std::size_t k = order.size(); k-- > 0;) {  // from below: no lower than wanted
    place[order[k]] = std::min(wanted[order[k]], bottom);
    bottom = place[order[k]] - kLine;
  }
  double top = kTop - kLine / 2;
  for (std::size_t index : order) {  // from above: push back down what left the drawing
    place[index] = std::max(place[index], top);
    top = place[index] + kLine;
  }
  return place;
}

std::string line_of(const Series& series, const Scale& scale, const char* colour, const char* dash) {
  std::string points, dots;
  for (const auto& [bytes, busbw] : series.points) {
    points += fmt::format("{:.1f},{:.1f} ", scale.x(bytes), scale.y(busbw));
    dots +=
        fmt::format("<circle cx='{:.1f}' cy='{:.1f}' r='2.6' fill='{}'><title>{}: {} at {:.3f} GB/s</title></circle>\n",
                    scale.x(bytes), scale.y(busbw), colour, escaped(series.label), size_label(bytes), busbw);
  }
  return fmt::format("<polyline points='{}' fill='none' stroke='{}' stroke-width='2' stroke-linejoin='round'{}/>\n{}",
                     points, colour, dash, dots);
}

}  // namespace

std::string size_label(double bytes) {
  static constexpr std::array<const char*, 5> kUnits{"", "K", "M", "G", "T"};
  std::size_t unit = 0;
  for (; bytes >= 1024 && unit + 1 < kUnits.size(); ++unit) bytes /= 1024;
  return fmt::format("{:.4g}{}", bytes, kUnits[unit]);
}

std::vector<Series> series_of(const Run& run, const std::string& label) {
  using Key = std::tuple<std::string, std::string, int>;
  std::vector<Key> keys;  // in the run's order
  std::map<Key, std::map<double, std::pair<double, int>>> sums;
  for (const Row& row : run.rows) {
    if (row.bytes == 0) continue;
    const Key key{row.type, row.op, row.root};
    if (!sums.count(key)) keys.push_back(key);
    auto& [sum, times] = sums[key][double(row.bytes)];  // several cycles: their mean
    sum += row.out_of_place.busbw;
    ++times;
  }
  std::vector<Series> all;
  for (const Key& key : keys) {
    const auto& [type, op, root] = key;
    Series series;
    series.label = label.empty() ? fmt::format("{}, {} ranks", run.program, run.ranks) : label;
    if (keys.size() > 1)
      series.label += ", " + type + (op == "none" ? "" : " " + op) + (root < 0 ? "" : fmt::format(" root {}", root));
    for (const auto& [bytes, sum] : sums[key]) series.points.emplace_back(bytes, sum.first / sum.second);
    all.push_back(std::move(series));
  }
  return all;
}

std::string to_svg(const std::vector<Series>& series, const std::string& title) {
  const Scale scale = scale_for(series);
  std::size_t longest = 0;
  std::vector<double> ends;
  for (const Series& s : series) {
    longest = std::max(longest, s.label.size());
    ends.push_back(s.points.empty() ? kTop + kHeight : scale.y(s.points.back().second));
  }
  const std::vector<double> places = spread_labels(ends);
  const double lowest = places.empty() ? 0 : *std::max_element(places.begin(), places.end());
  const double width = kLeft + kWidth + 30 + double(longest) * kLetter + 10;
  const double height = std::max(kTop + kHeight + kBottom, lowest + kLine);
  std::string svg = fmt::format(
      "<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {0:.0f} {1:.0f}' width='{0:.0f}' height='{1:.0f}' "
      "font-family='system-ui, sans-serif' font-size='13' fill='{2}'>\n"
      "<text x='{3:.1f}' y='22' font-size='16' font-weight='600'>{4}</text>\n"
      "<text x='{3:.1f}' y='42'>bus bandwidth, GB/s</text>\n<text x='{5:.1f}' y='{6:.1f}' text-anchor='middle'>size, "
      "bytes</text>\n",
      width, height, kInk, kLeft, escaped(title), kLeft + kWidth / 2, kTop + kHeight + 42);
  svg += grid(scale);
  for (std::size_t i = 0; i < series.size(); ++i) {
    if (series[i].points.empty()) continue;
    const char* const colour = kColours[i % kColours.size()];
    const char* const dash = i / kColours.size() % 2 ? " stroke-dasharray='6 4'" : "";
    svg += line_of(series[i], scale, colour, dash);
    const double x = scale.x(series[i].points.back().first), label_x = kLeft + kWidth + 26;
    svg += fmt::format("<line x1='{:.1f}' y1='{:.1f}' x2='{:.1f}' y2='{:.1f}' stroke='{}' stroke-opacity='0.5'/>\n",
                       x + 4, ends[i], label_x - 4, places[i], colour);
    svg += fmt::format("<text x='{:.1f}' y='{:.1f}' fill='{}' font-weight='600'>{}</text>\n", label_x, places[i] + 4,
                       colour, escaped(series[i].label));
  }
  return svg + "</svg>\n";
}

}  // namespace tutti::perf
