#include "perf/driver/split.h"

#include <array>
#include <cctype>
#include <charconv>
#include <string_view>

#include <fmt/format.h>

namespace tutti::perf {
namespace {

struct Spelling {
  std::string_view text;
  Split::Rule rule;
};
constexpr std::array<Spelling, 8> kSpellings{{{"AND", Split::Rule::bit_and},
                                              {"&", Split::Rule::bit_and},
                                              {"OR", Split::Rule::bit_or},
                                              {"|", Split::Rule::bit_or},
                                              {"MOD", Split::Rule::modulo},
                                              {"%", Split::Rule::modulo},
                                              {"DIV", Split::Rule::divide},
                                              {"/", Split::Rule::divide}}};

std::optional<int> number_from(std::string_view text) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  int base = 10, value = 0;
  if (text.starts_with("0x") || text.starts_with("0X")) base = 16, text.remove_prefix(2);
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, base);
  if (error != std::errc() || end != text.data() + text.size() || value < 0) return std::nullopt;
  return value;
}

std::optional<Split> parse(std::string_view text) {
  for (const Spelling& spelling : kSpellings) {
    if (!text.starts_with(spelling.text)) continue;
    const auto value = number_from(text.substr(spelling.text.size()));
    const bool divides = spelling.rule == Split::Rule::modulo || spelling.rule == Split::Rule::divide;
    if (!value || (divides && *value == 0)) return std::nullopt;
    return Split{spelling.rule, *value};
  }
  return std::nullopt;
}

}  // namespace

int Split::color_of(int rank) const {
  switch (rule) {
    case Rule::bit_and: return rank & value;
    case Rule::bit_or: return rank | value;
    case Rule::modulo: return rank % value;
    case Rule::divide: return rank / value;
  }
  return 0;
}

Result<std::optional<Split>> split_from(const Environment& environment) {
  if (const auto found = environment.find("NCCL_TESTS_SPLIT"); found != environment.end()) {
    std::string text = found->second;
    for (char& c : text) c = char(std::toupper(static_cast<unsigned char>(c)));
    if (const auto split = parse(text)) return split;
    return Status(
        Code::invalid_argument,
        fmt::format("NCCL_TESTS_SPLIT='{}' is not AND, OR, MOD or DIV with a number, as in MOD2", found->second));
  }
  if (const auto found = environment.find("NCCL_TESTS_SPLIT_MASK"); found != environment.end()) {
    const auto mask = number_from(found->second);
    if (!mask)
      return Status(Code::invalid_argument, fmt::format("NCCL_TESTS_SPLIT_MASK='{}' is not a number", found->second));
    return std::optional(Split{Split::Rule::bit_and, *mask});
  }
  return std::optional<Split>{};
}

}  // namespace tutti::perf
