// HwlocBits: hwloc's text form of sets. See hwloc_object.h.
#include <fmt/format.h>
#include <bit>
#include <charconv>

#include "topology/hwloc_object.h"

namespace tutti::topology {

int HwlocBits::first() const {
  for (std::size_t i = 0; i < words.size(); ++i)
    if (words[i] != 0) return int(i) * 32 + std::countr_zero(words[i]);
  return endless ? int(words.size()) * 32 : -1;
}

int HwlocBits::count() const {
  int n = 0;
  for (const std::uint32_t w : words) n += std::popcount(w);
  return n;
}

bool HwlocBits::contains(int bit) const {
  const std::size_t word = std::size_t(bit) / 32;
  return word < words.size() ? (words[word] >> (bit % 32) & 1) != 0 : endless;
}

void HwlocBits::insert(int bit) {
  const std::size_t word = std::size_t(bit) / 32;
  if (word >= words.size()) words.resize(word + 1, endless ? ~0u : 0u);
  words[word] |= 1u << (bit % 32);
}

void HwlocBits::add(const HwlocBits& other) {
  if (words.size() < other.words.size()) words.resize(other.words.size(), endless ? ~0u : 0u);
  for (std::size_t i = 0; i < words.size(); ++i)
    words[i] |= i < other.words.size() ? other.words[i] : other.endless ? ~0u : 0u;
  endless = endless || other.endless;
}

void HwlocBits::keep(const HwlocBits& other) {
  if (endless && other.words.size() > words.size()) words.resize(other.words.size(), ~0u);
  for (std::size_t i = 0; i < words.size(); ++i)
    words[i] &= i < other.words.size() ? other.words[i] : other.endless ? ~0u : 0u;
  endless = endless && other.endless;
  while (!endless && !words.empty() && words.back() == 0) words.pop_back();
}

std::optional<HwlocBits> parse_hwloc_bits(const std::string& text) {
  HwlocBits bits;
  std::string_view rest = text;
  if (rest.substr(0, 7) == "0xf...f") {
    bits.endless = true;
    rest.remove_prefix(7);
    if (rest.empty()) return bits;
    if (rest.front() != ',') return std::nullopt;
    rest.remove_prefix(1);
  }
  std::vector<std::uint32_t> high_first;
  for (bool more = true; more;) {
    const std::size_t comma = rest.find(',');
    std::string_view word = rest.substr(0, comma);
    more = comma != std::string_view::npos;
    rest.remove_prefix(more ? comma + 1 : rest.size());
    std::uint32_t value = 0;  // an empty word between commas is zero
    if (!word.empty()) {
      if (word.substr(0, 2) == "0x") word.remove_prefix(2);
      const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value, 16);
      if (error != std::errc() || end != word.data() + word.size()) return std::nullopt;
    } else if (!more && high_first.empty()) {
      return std::nullopt;  // no word at all
    }
    high_first.push_back(value);
    if (high_first.size() > std::size_t(kMaxHwlocIndex) / 32) return std::nullopt;
  }
  bits.words.assign(high_first.rbegin(), high_first.rend());
  while (!bits.endless && !bits.words.empty() && bits.words.back() == 0) bits.words.pop_back();
  return bits;
}

std::string to_string(const HwlocBits& bits) {
  std::string out = bits.endless ? "0xf...f" : "";
  for (auto word = bits.words.rbegin(); word != bits.words.rend(); ++word)
    out += fmt::format("{}0x{:08x}", out.empty() ? "" : ",", *word);
  return out.empty() ? "0x0" : out;
}

CpuSet to_cpu_set(const HwlocBits& bits) {
  CpuSet cpus;
  int begin = -1;
  const int end = int(bits.words.size()) * 32;
  for (int bit = 0; bit <= end; ++bit) {
    const bool in = bit < end && bits.contains(bit);
    if (in && begin < 0) begin = bit;
    if (!in && begin >= 0) {
      cpus.insert(begin, bit - 1);
      begin = -1;
    }
  }
  return cpus;
}

HwlocBits to_hwloc_bits(const CpuSet& cpus) {
  HwlocBits bits;
  for (const auto& [first, last] : cpus.ranges())
    for (int cpu = first; cpu <= last; ++cpu) bits.insert(cpu);
  return bits;
}

}  // namespace tutti::topology
