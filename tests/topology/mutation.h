#pragma once
// Mutation: damage to a text such as files meet it, and what must hold of a Graph whatever it was read from.
#include <algorithm>
#include <array>
#include <cmath>
#include <random>
#include <string>

#include "topology/graph.h"

namespace tutti::topology::test {

inline std::size_t place_in(const std::string& text, std::mt19937_64& random) {
  return text.empty() ? 0 : std::size_t(random() % (text.size() + 1));
}

// A number or a word in quotes becomes another.
inline void replace_value(std::string& text, std::mt19937_64& random) {
  static const std::array<const char*, 18> kValues = {"",
                                                      "-1",
                                                      "0",
                                                      "4294967295",
                                                      "18446744073709551615",
                                                      "1e308",
                                                      "nan",
                                                      "0x0",
                                                      "0xf...f",
                                                      "0x1,,,,,,,,0x1",
                                                      "Machine",
                                                      "NUMANode",
                                                      "PU",
                                                      "PCIDev",
                                                      "0-1",
                                                      "0000:01:00.0",
                                                      "ffff:ff:1f.7",
                                                      "Package"};
  const std::size_t open = text.find("=\"", place_in(text, random)),
                    close = open == std::string::npos ? open : text.find('"', open + 2);
  if (close != std::string::npos) text.replace(open + 2, close - open - 2, kValues[random() % kValues.size()]);
}

// A line, which is most often one element, moves, goes or comes twice.
inline void move_line(std::string& text, const std::string& other, std::mt19937_64& random) {
  const auto line_of = [&random](const std::string& from) {
    const std::size_t begin = std::min(from.find('\n', place_in(from, random)), from.size()),
                      end = std::min(from.find('\n', begin + 1), from.size());
    return std::pair(begin, end - begin);
  };
  const auto [at, length] = line_of(text);
  const std::string& source = random() % 2 ? text : other;
  const auto [from, size] = line_of(source);
  const std::string line = source.substr(from, size);
  if (random() % 3 == 0) text.erase(at, length);
  if (random() % 3 != 0) text.insert(std::min(at, text.size()), line);
}

// Half of the texts stay well-formed, mostly, and so get past the XML parser.
inline std::string mutated(std::string text, const std::string& other, std::mt19937_64& random) {
  const std::uint64_t kinds = random() % 2 ? 7 : 2;
  for (std::uint64_t times = 1 + random() % 6; times > 0; --times) {
    switch (6 - random() % kinds) {
      case 0:
        if (!text.empty()) text[random() % text.size()] = char(random());
        break;
      case 1: text.resize(place_in(text, random)); break;
      case 2: text.erase(place_in(text, random), random() % 200); break;
      case 3: text.insert(place_in(text, random), other.substr(place_in(other, random), random() % 2000)); break;
      case 4:
        if (random() % 4 == 0) move_line(text, other, random);
        break;
      default: replace_value(text, random); break;
    }
  }
  return text;
}

// "" where everything points to something and figures are numbers.
inline std::string disorder(const Graph& graph) {
  if (graph.vertices.empty() || graph.vertices[0].parent != -1) return "no root";
  for (std::size_t v = 1; v < graph.vertices.size(); ++v)
    if (graph.vertices[v].parent < 0 || graph.vertices[v].parent >= int(v)) return "a vertex before its parent";
  const int end = int(graph.vertices.size());
  for (const Link& link : graph.links) {
    if (link.a < 0 || link.a >= end || link.b >= end || (link.b < 0 && link.kind != LinkKind::network))
      return "a link to nowhere";
    if (!std::isfinite(link.bandwidth.value) || link.bandwidth.value < 0 || !std::isfinite(link.latency.value) ||
        link.latency.value < 0 || link.count < 1)
      return "a figure that is none";
  }
  for (const Relation& r : graph.relations)
    if (r.a < 0 || r.a >= r.b || r.b >= end) return "a relation to nowhere";
  return "";
}

}  // namespace tutti::topology::test
