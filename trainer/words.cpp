#include "trainer/words.h"

#include "trainer/unicode.h"

namespace tutti::trainer {
namespace {

enum class Class { letter, number, space, other };

Class class_of(std::uint32_t c) {
  if (c == kNoCharacter) return Class::other;
  return is_letter(c) ? Class::letter : is_number(c) ? Class::number : is_space(c) ? Class::space : Class::other;
}

}  // namespace

std::size_t word_length(std::string_view text, std::size_t at) {
  for (const std::string_view ending : {"'s", "'t", "'re", "'ve", "'m", "'ll", "'d"}) {
    if (text.substr(at, ending.size()) == ending) return ending.size();
  }
  const CodePoint first = code_point_at(text, at);
  std::size_t end = at + first.bytes;
  Class kind = class_of(first.value);
  if (first.value == ' ' && end < text.size()) {      // one blank belongs to the word behind it
    const CodePoint next = code_point_at(text, end);
    kind = class_of(next.value);
    if (kind != Class::space) end += next.bytes;
  }
  std::size_t last = at;                              // where the last character begins
  while (end < text.size()) {
    const CodePoint next = code_point_at(text, end);
    if (class_of(next.value) != kind) break;
    last = end;
    end += next.bytes;
  }
  // White space leaves its last character to the word that follows, if it has more than that one.
  const bool gives = kind == Class::space && end < text.size() && last > at;
  return (gives ? last : end) - at;
}

}  // namespace tutti::trainer
