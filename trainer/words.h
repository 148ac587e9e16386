#pragma once
// Cuts a text into the pieces within which BPE merges bytes, as GPT-2 does by the pattern
//   's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
// Written out: no regular expressions, linear time. Bytes that are no UTF-8 count as neither letter, number nor space.
#include <cstddef>
#include <string_view>

namespace tutti::trainer {

// The length in bytes of the piece that begins at `at` < text.size(). The pieces of a text, one behind another, are the text.
std::size_t word_length(std::string_view text, std::size_t at);

}  // namespace tutti::trainer
