#pragma once
// Values as the bytes that two ranks of one byte order send each other.
#include <cstddef>
#include <cstring>
#include <span>
#include <string_view>
#include <type_traits>
#include <vector>

namespace tutti::transport::rdma {

inline void append_bytes(std::vector<std::byte>& out, const void* from, std::size_t bytes) {
  if (bytes == 0) return;
  out.resize(out.size() + bytes);
  std::memcpy(out.data() + out.size() - bytes, from, bytes);
}

template <class T>
void append(std::vector<std::byte>& out, const T& value) {
  static_assert(std::is_trivially_copyable_v<T>);
  append_bytes(out, &value, sizeof value);
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
