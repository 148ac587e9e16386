#pragma once
// As much of Unicode as a tokenizer wants: UTF-8 and whether a character is a letter, a number or white space.
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace tutti::trainer {

bool is_letter(std::uint32_t code_point);      // category L
bool is_number(std::uint32_t code_point);      // category N
bool is_space(std::uint32_t code_point);       // property White_Space

inline constexpr std::uint32_t kNoCharacter = 0xffffffffu;
struct CodePoint {
  std::uint32_t value;      // kNoCharacter: a byte that is part of no well-formed UTF-8
  std::size_t bytes;
};
// at < text.size().
CodePoint code_point_at(std::string_view text, std::size_t at);

}  // namespace tutti::trainer
