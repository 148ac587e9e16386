#pragma once
// GPT-2's files write a byte as a character that can be seen: printable ones of Latin-1 as themselves, the others as U+0100 and on.
// Tokens of single bytes are numbered in the order of this alphabet: printable ones first.
#include <array>
#include <cstddef>
#include <cstdint>

namespace tutti::trainer {

constexpr bool gpt2_prints(unsigned byte) { return (byte >= '!' && byte <= '~') || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae; }

// Byte number `place` (below 256) of the alphabet.
constexpr unsigned char gpt2_byte(std::size_t place) {
  for (const bool prints : {true, false}) {
    for (unsigned byte = 0; byte < 256; ++byte) {
      if (gpt2_prints(byte) == prints && place-- == 0) return static_cast<unsigned char>(byte);
    }
  }
  return 0;
}

// The code point that stands for each byte.
constexpr std::array<std::uint32_t, 256> gpt2_characters() {
  std::array<std::uint32_t, 256> all{};
  std::uint32_t next = 0x100;
  for (unsigned byte = 0; byte < 256; ++byte) all[byte] = gpt2_prints(byte) ? byte : next++;
  return all;
}

}  // namespace tutti::trainer
