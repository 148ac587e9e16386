#include "tests/topology/mutator.h"

#include <algorithm>
#include <array>
#include <utility>

namespace tutti::topology::test {
namespace {

constexpr std::array kValues = {"", "-1", "0", "7", "255", "4294967295", "4294967296", "18446744073709551615",
                                "99999999999999999999", "1e308", "nan", "0x0", "0xf...f", "0x1,,,,,,,,0x1", "0-1",
                                "3-0", "0-99999999", "0000:01:00.0", "ffff:ff:1f.7", "Machine", "NUMANode", "PU",
                                "PCIDev", "Package"};

}  // namespace

Mutator::Mutator(std::uint64_t seed, std::vector<std::string> bases, std::vector<std::string> words)
    : random_(seed), bases_(std::move(bases)), words_(std::move(words)) {}

std::string Mutator::next() {
  std::string text = base();
  const bool gentle = below(2) == 0;
  for (std::size_t changes = 1 + below(6); changes > 0; --changes) switch (gentle ? below(3) : below(9)) {
      case 0: replace_value(text); break;
      case 1: replace_number(text); break;
      case 2: move_line(text); break;
      default: break_anywhere(text);
    }
  return text;
}

void Mutator::break_anywhere(std::string& text) {
  const std::size_t at = place_in(text), length = std::min(below(200), text.size() - at);
  switch (below(7)) {
    case 0: text.resize(at); break;
    case 1: text.erase(at, length); break;
    case 2: text.insert(at, text.substr(at, length)); break;
    case 3: if (!words_.empty()) text.insert(at, words_[below(words_.size())]); break;
    case 4:
      if (!words_.empty()) text.replace(at, std::min<std::size_t>(length, 40), words_[below(words_.size())]);
      break;
    case 5: if (at < text.size()) text[at] = char(below(256)); break;
    default: {
      const std::string& other = base();
      text.insert(at, other.substr(place_in(other), below(2000)));
    }
  }
}

void Mutator::replace_value(std::string& text) {
  const std::size_t open = text.find("=\"", place_in(text));
  const std::size_t close = open == std::string::npos ? open : text.find('"', open + 2);
  if (close != std::string::npos) text.replace(open + 2, close - open - 2, kValues[below(kValues.size())]);
}

void Mutator::replace_number(std::string& text) {
  const std::size_t at = text.find_first_of("0123456789", place_in(text));
  if (at != std::string::npos) text.replace(at, 1, kValues[below(kValues.size())]);
}

// A line, which is most often one element, goes, or comes from somewhere else or another text.
void Mutator::move_line(std::string& text) {
  const auto line_in = [this](const std::string& from) {
    const std::size_t begin = std::min(from.find('\n', place_in(from)), from.size());
    return std::pair(begin, std::min(from.find('\n', begin + 1), from.size()) - begin);
  };
  const auto [at, length] = line_in(text);
  const std::string& source = below(2) == 0 ? text : base();
  const auto [from, size] = line_in(source);
  const std::string line = source.substr(from, size);
  const std::size_t what = below(3);
  if (what != 0) text.erase(at, length);
  if (what != 1) text.insert(at, line);
}

}  // namespace tutti::topology::test
