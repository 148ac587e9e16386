#pragma once
// Bytes from one place to another by some threads, as wide as the two lie alike: by 16, by 4, or singly. Several loads are
// under way before the first is stored: each may take a trip over a bus.
#include <kernels/cuda/thread.h>

namespace tutti::kernels::cuda {

template <class Unit>
TUTTI_ANYWHERE Unit load_unit(const std::byte* from) {
  Unit unit;
  __builtin_memcpy(&unit, __builtin_assume_aligned(from, sizeof(Unit)), sizeof(Unit));
  return unit;
}
template <>
TUTTI_ANYWHERE Pack load_unit<Pack>(const std::byte* from) {
  return load_pack(from);
}
template <class Unit>
TUTTI_ANYWHERE void store_unit(std::byte* to, const Unit& unit) {
  __builtin_memcpy(__builtin_assume_aligned(to, sizeof(Unit)), &unit, sizeof(Unit));
}
template <>
TUTTI_ANYWHERE void store_unit<Pack>(std::byte* to, const Pack& pack) {
  store_pack(to, pack);
}

// Those bytes that are whole units of both; the ends are others'.
template <class Unit>
TUTTI_ANYWHERE void move_units(std::byte* to, const std::byte* from, std::size_t units, std::size_t thread,
                               std::size_t threads) {
  constexpr std::size_t kAtOnce = 4;
  for (std::size_t k = thread; k < units; k += kAtOnce * threads) {
    Unit some[kAtOnce];
    TUTTI_UNROLL
    for (std::size_t j = 0; j < kAtOnce; ++j)
      if (k + j * threads < units) some[j] = load_unit<Unit>(from + (k + j * threads) * sizeof(Unit));
    TUTTI_UNROLL
    for (std::size_t j = 0; j < kAtOnce; ++j)
      if (k + j * threads < units) store_unit(to + (k + j * threads) * sizeof(Unit), some[j]);
  }
}

// This is `thread` of `threads`. The two may be the same place, and do not overlap otherwise.
TUTTI_ANYWHERE_ONCE void move_bytes(std::byte* to, const std::byte* from, std::size_t bytes, std::size_t thread,
                                    std::size_t threads) {
  const std::uintptr_t differ = std::uintptr_t(to) ^ std::uintptr_t(from);
  const std::size_t unit = differ % sizeof(Pack) == 0 ? sizeof(Pack) : differ % 4 == 0 ? 4 : 1;
  const std::size_t before = (unit - std::uintptr_t(to) % unit) % unit, head = before < bytes ? before : bytes;
  const std::size_t units = (bytes - head) / unit;
  if (unit == sizeof(Pack))
    move_units<Pack>(to + head, from + head, units, thread, threads);
  else if (unit == 4)
    move_units<std::uint32_t>(to + head, from + head, units, thread, threads);
  else
    return move_units<std::byte>(to, from, bytes, thread, threads);
  for (std::size_t k = thread; k < bytes - units * unit; k += threads) {
    const std::size_t at = k < head ? k : k + units * unit;
    to[at] = from[at];
  }
}

}  // namespace tutti::kernels::cuda
