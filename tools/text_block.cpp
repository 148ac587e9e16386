#include "tools/text_block.h"

#include <algorithm>
#include <vector>

namespace tutti::tools {
namespace {

bool continues(char c) { return (static_cast<unsigned char>(c) & 0xc0) == 0x80; }

// Bytes of the valid code point at `at`, 0: none. Overlong forms and surrogates count as none.
std::size_t code_point(const std::string& text, std::size_t at) {
  const auto lead = static_cast<unsigned char>(text[at]);
  const std::size_t length = lead < 0x80                   ? 1
                             : lead >= 0xc2 && lead < 0xe0 ? 2
                             : (lead & 0xf0) == 0xe0       ? 3
                             : lead >= 0xf0 && lead < 0xf5 ? 4
                                                           : 0;
  if (length == 0 || at + length > text.size()) return 0;
  for (std::size_t i = 1; i < length; ++i)
    if (!continues(text[at + i])) return 0;
  const auto second = static_cast<unsigned char>(length > 1 ? text[at + 1] : 0);
  const bool bad = (lead == 0xe0 && second < 0xa0) || (lead == 0xed && second >= 0xa0) ||
                   (lead == 0xf0 && second < 0x90) || (lead == 0xf4 && second >= 0x90) ||
                   (lead == 0xc2 && second < 0xa0) || (lead == 0xef && second == 0xbf);
  return bad ? 0 : length;  // the last two: C1 controls, and non-characters that XML refuses
}

// Bytes of the first `limit` columns.
std::size_t bytes_of(const std::string& text, std::size_t limit) {
  std::size_t at = 0;
  while (at < text.size() && limit-- > 0) do
      ++at;
    while (at < text.size() && continues(text[at]));
  return at;
}

std::vector<std::string> words_of(const std::string& text) {
  std::vector<std::string> words;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find(' ', at), text.size());
    if (end > at) words.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  return words;
}

}  // namespace

std::string printable(const std::string& text) {
  std::string out;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t length = code_point(text, at);
    const auto c = static_cast<unsigned char>(text[at]);
    if (length == 0 || c < 0x20 || c == 0x7f) {
      out += '?';
      ++at;
    } else {
      out.append(text, at, length);
      at += length;
    }
  }
  return out;
}

std::size_t columns(const std::string& text) {
  return std::size_t(std::count_if(text.begin(), text.end(), [](char c) { return !continues(c); }));
}

std::string shortened(const std::string& text, std::size_t limit) {
  return columns(text) <= limit ? text : text.substr(0, bytes_of(text, limit - 1)) + "…";
}

std::string wrapped(const std::string& text, const std::string& first, const std::string& rest, std::size_t width) {
  std::string out, line = first;
  bool empty = true;  // nothing but the prefix in `line`
  const auto end_line = [&] {
    out += line + '\n';
    line = rest;
    empty = true;
  };
  for (std::string word : words_of(text)) {
    if (!empty && columns(line) + 1 + columns(word) > width) end_line();
    while (columns(line) + columns(word) > width && columns(line) + 8 < width) {
      const std::size_t cut = bytes_of(word, width - columns(line));
      line += word.substr(0, cut);
      word.erase(0, cut);
      end_line();
    }
    line += (empty ? "" : " ") + word;
    empty = false;
  }
  while (!line.empty() && line.back() == ' ') line.pop_back();
  out += line + '\n';
  for (std::size_t at = out.find(kNoBreak); at != std::string::npos; at = out.find(kNoBreak, at))
    out.replace(at, sizeof(kNoBreak) - 1, " ");
  return out;
}

}  // namespace tutti::tools
