// See rules.h. The two tables below are the architecture: docs/architecture.md explains them.
#include "tests/house/rules.h"
#include <algorithm>
#include <cctype>
#include <fmt/format.h>
#include <map>
#include <regex>
#include <sstream>

namespace tutti::house {
namespace {

// A file belongs to the longest of these that its path begins with, and may include what stands behind it, its own
// room, and <tutti/...>. Five siblings include no one but core; only comm joins them.
const std::map<std::string, std::vector<std::string>> kMayInclude = {
    {"include/", {}},
    {"core/", {}},
    {"kernels/", {"core/"}},
    {"topology/", {"core/"}},
    {"transport/", {"core/"}},
    {"algorithms/", {"core/"}},
    {"record/", {"core/"}},
    {"comm/", {"core/", "kernels/", "topology/", "transport/", "algorithms/", "record/"}},
    {"nccl/", {"core/", "kernels/", "comm/"}},
    {"trainer/", {}},
    {"perf/", {}},
    {"perf/compare/", {"perf/"}},
    {"perf/kernels/", {"perf/", "core/", "kernels/"}},
    {"perf/planning/", {"perf/", "algorithms/", "comm/"}},
    {"perf/recorder/", {"perf/", "algorithms/", "comm/", "core/", "record/", "transport/"}},
    {"perf/regret/", {"perf/", "algorithms/", "comm/"}},
    {"perf/strangers/", {"perf/"}},
    {"perf/trainer/", {"perf/", "trainer/"}},
    {"perf/transport/", {"perf/", "core/", "transport/"}},
    {"python/", {}},
    {"tools/", {"core/", "kernels/", "topology/", "transport/", "algorithms/", "record/", "comm/"}},
};

// Headers of a foreign library, and the only folders (or file stems) that may include them. Tests may include anything.
const std::map<std::string, std::vector<std::string>> kGuestRooms = {
    {"hwloc", {"topology/"}},
    {"infiniband/", {"transport/rdma/", "topology/"}},
    {"boost/asio", {"core/", "transport/tcp/", "comm/bootstrap"}},
    {"cuda", {"kernels/cuda/", "transport/cuda_ipc/", "topology/", "nccl/", "trainer/"}},
    {"nvml", {"topology/"}},
    {"pugixml", {"topology/"}},
    {"CLI/", {"tools/", "perf/", "trainer/"}},
    {"cblas", {"trainer/"}},
    {"benchmark/", {"perf/"}},
    {"torch/", {"python/"}},
    {"ATen/", {"python/"}},
    {"pybind11/", {"python/"}},
    {"gtest/", {}},
    {"gmock/", {}},
};

bool is_cpp(const std::string& path) {
  return path.ends_with(".h") || path.ends_with(".cpp") || path.ends_with(".cu") || path.ends_with(".cuh");
}

std::string room_of(const std::string& path) {
  std::string room;
  for (const auto& entry : kMayInclude) {
    if (path.starts_with(entry.first) && entry.first.size() > room.size()) room = entry.first;
  }
  return room;
}

struct Include { int line; bool quoted; std::string name; };

std::vector<Include> includes_of(const std::string& text) {
  static const std::regex pattern(R"re(^\s*#\s*include\s*([<"])([^>"]+)[>"])re");
  std::vector<Include> found;
  std::istringstream lines(text);
  int number = 0;
  for (std::string line; std::getline(lines, line);) {
    ++number;
    std::smatch match;
    if (std::regex_search(line, match, pattern)) found.push_back({number, match[1] == "\"", match[2]});
  }
  return found;
}

// Position behind the literal or comment that begins at `at`; `at` itself when none does.
std::size_t skip_blank_part(std::string_view text, std::size_t at) {
  const auto end_or_all = [&](std::size_t found, std::size_t more) {
    return found == std::string_view::npos ? text.size() : found + more;
  };
  const std::string_view rest = text.substr(at);
  if (rest.starts_with("//")) return end_or_all(text.find('\n', at), 0);
  if (rest.starts_with("/*")) return end_or_all(text.find("*/", at + 2), 2);
  if (rest.starts_with("R\"") && rest.find('(') != std::string_view::npos) {
    const std::string close = fmt::format("){}\"", rest.substr(2, rest.find('(') - 2));
    return end_or_all(text.find(close, at), close.size());
  }
  const bool separator = at > 0 && text[at] == '\'' && std::isalnum(static_cast<unsigned char>(text[at - 1]));  // 1'000
  if (text[at] != '"' && (text[at] != '\'' || separator)) return at;
  for (std::size_t i = at + 1; i < text.size(); ++i) {
    if (text[i] == '\\') ++i;
    else if (text[i] == text[at] || text[i] == '\n') return i + 1;
  }
  return text.size();
}

void blank(std::string& text, std::size_t begin, std::size_t end) {
  for (std::size_t i = begin; i < end; ++i) {
    if (text[i] != '\n') text[i] = ' ';
  }
}

// What stands between the last ; { } and an opening brace tells what the brace opens.
enum class Opens { scope, function, other };
Opens what_opens(std::string head) {
  static const std::regex templates(
      R"(\btemplate\s*<[^{;]*?>(?=\s*(class|struct|union|enum|inline|static|constexpr|[A-Za-z_:])))");
  head = std::regex_replace(head, templates, " ");
  static const std::regex scopes(R"(^\s*(inline\s+)?(namespace|class|struct|union|extern)\b)"), enums(R"(^\s*enum\b)");
  if (std::regex_search(head, scopes) && head.find('(') == std::string::npos) return Opens::scope;
  if (std::regex_search(head, enums)) return Opens::other;
  return head.find('(') != std::string::npos ? Opens::function : Opens::other;
}

int line_at(std::string_view text, std::size_t at) {
  return 1 + static_cast<int>(std::count(text.begin(), text.begin() + static_cast<long>(at), '\n'));
}

}  // namespace

std::string code_only(std::string_view text) {
  std::string code(text);
  bool line_start = true;
  for (std::size_t i = 0; i < text.size();) {
    if (line_start && text[i] == '#') {
      std::size_t end = i;
      do end = std::min(text.find('\n', end + 1), text.size()); while (end < text.size() && text[end - 1] == '\\');
      blank(code, i, end);
      i = end;
      continue;
    }
    const std::size_t end = skip_blank_part(text, i);
    if (end > i) {
      blank(code, i, end);
      i = end;
      continue;
    }
    if (text[i] == '\n') line_start = true;
    else if (text[i] != ' ') line_start = false;
    ++i;
  }
  return code;
}

Findings broken_arrows(const File& file) {
  Findings findings;
  const std::string room = room_of(file.path);
  if (room.empty() || !is_cpp(file.path)) return findings;
  for (const Include& include : includes_of(file.text)) {
    if (!include.quoted) continue;
    const std::string target = room_of(include.name);
    const auto& allowed = kMayInclude.at(room);
    const bool own = include.name.starts_with(room);
    const bool permitted =
        std::any_of(allowed.begin(), allowed.end(), [&](const std::string& r) { return include.name.starts_with(r); });
    if (own || permitted) continue;
    findings.push_back(target.empty()
                           ? fmt::format("{}:{}: includes \"{}\", which names no room: write the path from the root",
                                         file.path, include.line, include.name)
                           : fmt::format("{}:{}: broken arrow {} -> {} (\"{}\")", file.path, include.line, room, target,
                                         include.name));
  }
  return findings;
}

Findings foreign_guests(const File& file) {
  Findings findings;
  if (file.path.starts_with("tests/") || !is_cpp(file.path)) return findings;
  for (const Include& include : includes_of(file.text)) {
    if (include.quoted) continue;
    for (const auto& [guest, rooms] : kGuestRooms) {
      if (!include.name.starts_with(guest)) continue;
      const bool welcome =
          std::any_of(rooms.begin(), rooms.end(), [&](const std::string& r) { return file.path.starts_with(r); });
      if (!welcome)
        findings.push_back(fmt::format("{}:{}: <{}> is not for this room", file.path, include.line, include.name));
    }
  }
  return findings;
}

Findings environment_reads(const File& file) {
  Findings findings;
  if (file.path == "core/config.cpp" || file.path.starts_with("tests/") || !is_cpp(file.path)) return findings;
  const std::string code = code_only(file.text);
  static const std::regex pattern(R"(\b(secure_)?getenv\b)");
  for (auto match = std::sregex_iterator(code.begin(), code.end(), pattern); match != std::sregex_iterator(); ++match) {
    findings.push_back(fmt::format("{}:{}: getenv is for core/config.cpp alone: environment() reads one variable",
                                   file.path, line_at(code, static_cast<std::size_t>(match->position()))));
  }
  return findings;
}

Findings long_functions(const File& file) {
  Findings findings;
  if (!is_cpp(file.path)) return findings;
  const std::string code = code_only(file.text);
  std::size_t head = 0, function_head = 0;
  int inside = 0;      // braces open since the function's own, itself included; 0: not in a function
  int others = 0;      // likewise for an initializer or an enum outside of functions
  for (std::size_t i = 0; i < code.size(); ++i) {
    const char c = code[i];
    if (c == '{') {
      if (inside > 0) ++inside;
      else if (others > 0) ++others;
      else if (const Opens opens = what_opens(code.substr(head, i - head)); opens == Opens::function) {
        inside = 1;
        function_head = code.find_first_not_of(" \n\t", head);
      } else if (opens == Opens::other) {
        others = 1;
      }
    } else if (c == '}' && inside > 0 && --inside == 0) {
      const int first = line_at(code, function_head), lines = line_at(code, i) - first + 1;
      if (lines > kLongestFunction) {
        findings.push_back(fmt::format("{}:{}: a function of {} lines; {} fit on a screen", file.path, first, lines,
                                       kLongestFunction));
      }
    } else if (c == '}' && others > 0) {
      --others;
    }
    if (c == ';' || c == '{' || c == '}') head = i + 1;
  }
  return findings;
}

Findings long_file(const File& file) {
  const auto lines = std::count(file.text.begin(), file.text.end(), '\n');
  if (!is_cpp(file.path) || lines < kLongestFile) return {};
  return {fmt::format("{}:{}: a file of {} lines; fewer than {} are wanted", file.path, lines, lines, kLongestFile)};
}

Findings no_opening_comment(const File& file) {
  const bool cmake = file.path.ends_with(".cmake") || file.path.ends_with("CMakeLists.txt");
  const bool script = file.path.ends_with(".py") || file.path.ends_with(".sh") || file.text.starts_with("#!");
  if (file.path == "CMakeLists.txt" || (!is_cpp(file.path) && !cmake && !script)) return {};
  std::istringstream lines(file.text);
  std::string line;
  while (std::getline(lines, line) && (line.empty() || line.starts_with("#!") || line == "#pragma once")) continue;
  const bool good = is_cpp(file.path) ? line.starts_with("//") || line.starts_with("/*")
                                      : line.starts_with("#") || line.starts_with("\"\"\"");
  // A pair shares one comment, in its header.
  const std::string stem = file.path.ends_with(".cpp") ? file.path.substr(0, file.path.size() - 4) : "";
  const bool half = !stem.empty() && (line == fmt::format("#include \"{}.h\"", stem) ||
                                      line == fmt::format("#include <tutti/{}.h>", stem.substr(stem.rfind('/') + 1)));
  if (good || half) return {};
  return {fmt::format("{}:1: does not open with a comment that says what it is", file.path)};
}

Findings machine_paths(const File& file) {
  // A place on a developer's machine, as opposed to one that any Linux has. Written so that this file does not match.
  static const std::regex pattern("(^|[^A-Za-z0-9_.])/(wor[k]|hom[e]/[a-z]+|roo[t])/[A-Za-z]");
  Findings findings;
  std::istringstream lines(file.text);
  int number = 0;
  for (std::string line; std::getline(lines, line);) {
    ++number;
    if (std::regex_search(line, pattern))
      findings.push_back(fmt::format("{}:{}: names a path of one machine: {}", file.path, number, line));
  }
  return findings;
}

}  // namespace tutti::house
