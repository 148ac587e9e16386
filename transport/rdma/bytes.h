#pragma once
// Values as the bytes that two ranks of one byte order send each other.
#include <cstddef>
#include <cstring>
#include <span>
#include <string_view>
#include <type_traits>
#include <vector>

namespace tutti::transport::rdma {

template <class T>
void append(std::vector<std::byte>& out, const T& value) {
  static_assert(std::is_trivially_copyable_v<T>);
  const auto* from = reinterpret_cast<const std::byte*>(&value);
  out.insert(out.end(), from, from + sizeof value);
}

inline void append(std::vector<std::byte>& out, std::string_view text) {
  const auto* from = reinterpret_cast<const std::byte*>(text.data());
  out.insert(out.end(), from, from + text.size());
}

// The next value of what is left. False: there is less.
template <class T>
bool take(std::span<const std::byte>& from, T& value) {
  static_assert(std::is_trivially_copyable_v<T>);
  if (from.size() < sizeof value) return false;
  std::memcpy(&value, from.data(), sizeof value);
  from = from.subspan(sizeof value);
  return true;
}

inline std::string_view text_of(std::span<const std::byte> bytes) { return {reinterpret_cast<const char*>(bytes.data()), bytes.size()}; }

}  // namespace tutti::transport::rdma
