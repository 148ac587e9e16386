#include "core/copy.h"

#include <cstdint>
#include <cstring>

namespace tutti {
namespace {

// Loads and stores of 16 bytes, the widest that every x86-64 and AArch64 has; with the stores aligned, wider ones gain nothing beyond L1.
typedef long long Vector __attribute__((vector_size(16)));
constexpr std::size_t kVector = sizeof(Vector);
constexpr std::size_t kLeast = 2048;      // below it glibc does not use `rep movsb`

inline Vector load(const std::byte* from) {
  Vector value;
  __builtin_memcpy(&value, from, kVector);
  return value;
}

inline void store(std::byte* to, Vector value) { __builtin_memcpy(to, &value, kVector); }

}  // namespace

void copy_bytes(std::byte* out, const std::byte* in, std::size_t bytes) {
  if (bytes < kLeast) {
    if (bytes != 0) std::memcpy(out, in, bytes);
    return;
  }
  std::byte* const end = out + bytes;
  const Vector last = load(in + bytes - kVector);
  store(out, load(in));
  const std::size_t head = kVector - (reinterpret_cast<std::uintptr_t>(out) & (kVector - 1));
  out += head;
  in += head;
  for (; end - out >= std::ptrdiff_t(4 * kVector); out += 4 * kVector, in += 4 * kVector) {
    const Vector a = load(in), b = load(in + kVector), c = load(in + 2 * kVector), d = load(in + 3 * kVector);
    store(out, a);
    store(out + kVector, b);
    store(out + 2 * kVector, c);
    store(out + 3 * kVector, d);
  }
  for (; end - out >= std::ptrdiff_t(kVector); out += kVector, in += kVector) store(out, load(in));
  store(end - kVector, last);
}

}  // namespace tutti
