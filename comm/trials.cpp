#include "comm/trials.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <bit>

namespace tutti::comm {

std::optional<std::uint64_t> trial_size(const Trials& trials, Collective collective, std::uint64_t bytes) {
  for (const Trial& trial : trials.times)
    if (trial.collective == collective && bytes >= trial.bytes / 2 && bytes < 2 * trial.bytes) return trial.bytes;
  return std::nullopt;
}

std::string shape_of(const std::vector<std::vector<int>>& levels) {
  std::string out;
  for (const std::vector<int>& level : levels) {
    std::vector<int> sizes(level.empty() ? 0 : std::size_t(*std::max_element(level.begin(), level.end())) + 1);
    for (const int group : level) ++sizes[std::size_t(group)];
    out += fmt::format("{}{}", out.empty() ? "" : "/", fmt::join(sizes, "+"));
  }
  return out;
}

std::uint64_t mark_of(const Trials& trials) {
  std::uint64_t hash = 0xcbf29ce484222325ull;      // FNV-1a, by words and letters
  const auto mix = [&hash](std::uint64_t value) { hash = (hash ^ value) * 0x100000001b3ull; };
  mix(std::uint64_t(trials.ranks));
  for (const char c : trials.shape) mix(std::uint8_t(c));
  for (const Trial& t : trials.times) {
    for (const char c : t.algorithm) mix(std::uint8_t(c));
    mix(std::uint64_t(t.collective));
    mix(t.bytes);
    mix(std::bit_cast<std::uint64_t>(t.seconds));
  }
  return hash == 0 ? 1 : hash;
}

const Trial* find_trial(const Trials& trials, Collective collective, std::string_view algorithm, std::uint64_t bytes) {
  const auto found = std::find_if(trials.times.begin(), trials.times.end(), [&](const Trial& t) {
    return t.collective == collective && t.algorithm == algorithm && t.bytes == bytes;
  });
  return found == trials.times.end() ? nullptr : &*found;
}

}  // namespace tutti::comm
