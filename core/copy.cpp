// By loads and stores of vectors, the stores aligned, with the lines ahead asked for, and none beyond the end: what a peer has
// just written or read lies in its core's cache, and the processor's own prefetcher ends at each page.
#include <core/copy.h>

#include <cstdint>
#include <cstring>

#include "core/prefetch.h"

namespace tutti {
namespace {

constexpr std::size_t kLeast = 256;         // below it nothing is gained
constexpr std::ptrdiff_t kAhead = 1024;     // bytes

template <std::size_t Bytes>
struct VectorOf {
  typedef long long type __attribute__((vector_size(Bytes)));
};

template <std::size_t Bytes>
[[gnu::always_inline]] inline void copy_by(std::byte* out, const std::byte* in, std::size_t bytes) {
  using Vector = typename VectorOf<Bytes>::type;
  std::byte* const end = out + bytes;
  for (std::ptrdiff_t line = 0; line < kAhead && line < std::ptrdiff_t(bytes); line += 64) {
    prefetch_to_write(out + line);
    __builtin_prefetch(in + line, 0);
  }
  Vector first, last;
  __builtin_memcpy(&first, in, Bytes);
  __builtin_memcpy(&last, in + bytes - Bytes, Bytes);
  __builtin_memcpy(out, &first, Bytes);
  const std::size_t head = Bytes - (reinterpret_cast<std::uintptr_t>(out) & (Bytes - 1));
  out += head;
  in += head;
  for (; end - out >= std::ptrdiff_t(4 * Bytes); out += 4 * Bytes, in += 4 * Bytes) {
    if (end - out >= kAhead + std::ptrdiff_t(4 * Bytes)) {   // no line beyond: a peer may be at it
      for (std::size_t line = 0; line < 4 * Bytes; line += 64) {
        __builtin_prefetch(in + kAhead + line, 0);
        prefetch_to_write(out + kAhead + line);
      }
    }
    Vector a, b, c, d;
    __builtin_memcpy(&a, in, Bytes);
    __builtin_memcpy(&b, in + Bytes, Bytes);
    __builtin_memcpy(&c, in + 2 * Bytes, Bytes);
    __builtin_memcpy(&d, in + 3 * Bytes, Bytes);
    __builtin_memcpy(out, &a, Bytes);
    __builtin_memcpy(out + Bytes, &b, Bytes);
    __builtin_memcpy(out + 2 * Bytes, &c, Bytes);
    __builtin_memcpy(out + 3 * Bytes, &d, Bytes);
  }
  for (; end - out >= std::ptrdiff_t(Bytes); out += Bytes, in += Bytes) {
    Vector v;
    __builtin_memcpy(&v, in, Bytes);
    __builtin_memcpy(out, &v, Bytes);
  }
  __builtin_memcpy(end - Bytes, &last, Bytes);
}

void by_16(std::byte* out, const std::byte* in, std::size_t bytes) { copy_by<16>(out, in, bytes); }

#if defined(__x86_64__)
[[gnu::target("avx2")]] void by_32(std::byte* out, const std::byte* in, std::size_t bytes) {
  copy_by<32>(out, in, bytes);
}
const auto copy_large = __builtin_cpu_supports("avx2") ? by_32 : by_16;
#else
constexpr auto copy_large = by_16;
#endif

}  // namespace

void copy_bytes(std::byte* out, const std::byte* in, std::size_t bytes) {
  if (bytes >= kLeast) return copy_large(out, in, bytes);
  if (bytes != 0) std::memcpy(out, in, bytes);
}

}  // namespace tutti
