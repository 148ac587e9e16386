#pragma once
// Numbers and texts to and from bytes that other processes read: little endian, fixed widths, texts with their length.
// Reading never trusts: what does not fit makes the reader bad, and everything read from then on is 0 or empty.
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace tutti::comm {

class ByteWriter {
 public:
  template <class T>
  requires std::is_unsigned_v<T> ByteWriter& number(T value) {
    std::byte bytes[sizeof(T)];
    for (std::size_t i = 0; i < sizeof(T); ++i) bytes[i] = std::byte(value >> (8 * i));
    return raw(bytes);
  }
  ByteWriter& raw(std::span<const std::byte> bytes);
  // Cut at 65,535 characters.
  ByteWriter& text(std::string_view value) {
    value = value.substr(0, 65535);
    number(std::uint16_t(value.size()));
    return raw(std::as_bytes(std::span(value.data(), value.size())));
  }
  const std::vector<std::byte>& bytes() const { return bytes_; }
  std::vector<std::byte> take() { return std::move(bytes_); }

 private:
  std::vector<std::byte> bytes_;
};

class ByteReader {
 public:
  explicit ByteReader(std::span<const std::byte> bytes) : rest_(bytes) {}

  template <class T>
  requires std::is_unsigned_v<T> T number() {
    auto from = raw(sizeof(T));
    T value = 0;
    for (std::size_t i = 0; i < from.size(); ++i) value = T(value | (T(from[i]) << (8 * i)));
    return value;
  }
  std::span<const std::byte> raw(std::size_t bytes) {
    if (bytes > rest_.size()) {
      good_ = false;
      rest_ = {};
      return {};
    }
    auto out = rest_.first(bytes);
    rest_ = rest_.subspan(bytes);
    return out;
  }
  std::string text() {
    auto from = raw(number<std::uint16_t>());
    return std::string(reinterpret_cast<const char*>(from.data()), from.size());
  }
  // False once something was missing.
  bool good() const { return good_; }
  bool at_end() const { return rest_.empty(); }
  std::span<const std::byte> rest() const { return rest_; }

 private:
  std::span<const std::byte> rest_;
  bool good_ = true;
};

}  // namespace tutti::comm
