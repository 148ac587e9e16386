#pragma once
// Writes messages in Protocol Buffers' encoding: as much as an ONNX file needs, and nothing that reads.
#include <bit>
#include <cstdint>
#include <string>
#include <string_view>

namespace tutti::trainer {

class Message {
 public:
  void number(std::uint32_t field, std::uint64_t value) {
    varint(std::uint64_t(field) << 3);
    varint(value);
  }
  void text(std::uint32_t field, std::string_view value) {      // also bytes, and packed numbers
    varint(std::uint64_t(field) << 3 | 2);
    varint(value.size());
    bytes_ += value;
  }
  void fixed32(std::uint32_t field, float value) {
    varint(std::uint64_t(field) << 3 | 5);
    const auto bits = std::bit_cast<std::uint32_t>(value);
    for (int shift = 0; shift < 32; shift += 8) bytes_ += char(bits >> shift & 0xff);
  }
  void message(std::uint32_t field, const Message& value) { text(field, value.bytes_); }
  const std::string& bytes() const { return bytes_; }

 private:
  void varint(std::uint64_t value) {
    for (; value >= 0x80; value >>= 7) bytes_ += char(0x80 | (value & 0x7f));
    bytes_ += char(value);
  }
  std::string bytes_;
};

}  // namespace tutti::trainer
