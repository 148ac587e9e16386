#include "comm/host_list.h"

#include <fmt/format.h>

#include <charconv>

namespace tutti::comm {
namespace {

constexpr std::size_t kMostHosts = 65536;  // Slurm's own limit

Status malformed(std::string_view text, std::string_view want) {
  return {Code::invalid_argument, fmt::format("\"{}\" is not {}", text, want)};
}

bool parse_whole(std::string_view text, int& out) {
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), out);
  return !text.empty() && text[0] != '-' && error == std::errc() && end == text.data() + text.size();
}

// The pieces between commas that are not inside of brackets.
std::vector<std::string_view> split_outside_brackets(std::string_view text) {
  std::vector<std::string_view> out;
  std::size_t start = 0;
  int depth = 0;
  for (std::size_t i = 0; i <= text.size(); ++i) {
    if (i < text.size() && text[i] == '[') ++depth;
    if (i < text.size() && text[i] == ']') --depth;
    if (i < text.size() && (text[i] != ',' || depth > 0)) continue;
    out.push_back(text.substr(start, i - start));
    start = i + 1;
  }
  return out;
}

// "01-03,07" -> 01 02 03 07, with the width of the first.
bool expand_ranges(std::string_view text, std::vector<std::string>& out) {
  for (std::string_view range : split_outside_brackets(text)) {
    auto dash = range.find('-');
    std::string_view low = range.substr(0, dash), high = dash == std::string_view::npos ? low : range.substr(dash + 1);
    int first = 0, last = 0;
    if (!parse_whole(low, first) || !parse_whole(high, last) || last < first) return false;
    if (std::size_t(last - first) >= kMostHosts) return false;
    for (int i = first; i <= last; ++i) out.push_back(fmt::format("{:0{}}", i, low.size()));
  }
  return !out.empty();
}

// One element: text and brackets by turns; the product of all brackets, the last one fastest.
bool expand_element(std::string_view text, std::vector<std::string>& out) {
  std::vector<std::string> heads = {""};
  while (!text.empty()) {
    auto open = text.find('[');
    std::string_view plain = text.substr(0, open);
    if (plain.find_first_of("] ") != std::string_view::npos) return false;
    for (auto& head : heads) head += plain;
    if (open == std::string_view::npos) break;
    auto close = text.find(']', open);
    std::vector<std::string> tails, product;
    if (close == std::string_view::npos || !expand_ranges(text.substr(open + 1, close - open - 1), tails)) return false;
    if (heads.size() * tails.size() > kMostHosts) return false;
    for (const auto& head : heads)
      for (const auto& tail : tails) product.push_back(head + tail);
    heads = std::move(product);
    text.remove_prefix(close + 1);
  }
  if (heads[0].empty()) return false;
  out.insert(out.end(), heads.begin(), heads.end());
  return out.size() <= kMostHosts;
}

}  // namespace

Result<std::vector<std::string>> expand_host_list(std::string_view text) {
  std::vector<std::string> out;
  for (std::string_view element : split_outside_brackets(text))
    if (!expand_element(element, out)) return malformed(text, "a list of hosts such as node[01-03,07],gpu5");
  return out;
}

Result<std::vector<int>> expand_counts(std::string_view text) {
  std::vector<int> out;
  for (std::string_view element : split_outside_brackets(text)) {
    auto open = element.find("(x");
    int value = 0, times = 1;
    bool good = parse_whole(element.substr(0, open), value);
    if (open != std::string_view::npos)
      good = good && element.back() == ')' && parse_whole(element.substr(open + 2, element.size() - open - 3), times);
    if (!good || times < 1 || out.size() + std::size_t(times) > kMostHosts)
      return malformed(text, "a list of counts such as 4(x2),3");
    out.insert(out.end(), std::size_t(times), value);
  }
  return out;
}

}  // namespace tutti::comm
