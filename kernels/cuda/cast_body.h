#pragma once
// Conversion between any two element types on a GPU, and the copy (a cast to the same type): the values of
// kernels/cast_value.h, so bit for bit what cast() gives. Buffers must not overlap.
#include <kernels/cast_value.h>
#include <kernels/cuda/number.h>

#include <type_traits>

namespace tutti::kernels::cuda {

struct CastArguments {
  std::byte* out = nullptr;
  const std::byte* in = nullptr;
  std::size_t count = 0;
};

template <DataType kFrom, DataType kTo>
struct Cast {
  using Arguments = CastArguments;
  using From = typename Number<kFrom>::T;
  using To = typename Number<kTo>::T;
  static constexpr std::size_t kWidth = 16 / (sizeof(From) < sizeof(To) ? sizeof(From) : sizeof(To));
  static constexpr std::size_t kIn = kWidth * sizeof(From) / 16, kOut = kWidth * sizeof(To) / 16;  // packs
  struct Inputs {
    From at[kWidth];
  };
  struct Outputs {
    To at[kWidth];
  };
  static constexpr bool kThroughF32 =
      std::is_same_v<typename Number<kFrom>::Acc, float> && std::is_same_v<typename Number<kTo>::Acc, float>;

  static TUTTI_ANYWHERE To one(From value) {
    if constexpr (kFrom == kTo)
      return value;
    else if constexpr (kThroughF32)
      return Number<kTo>::narrow(Number<kFrom>::widen(value));
    else
      return cast_write<typename Number<kTo>::Format>(cast_read<typename Number<kFrom>::Format>(value));
  }

  static TUTTI_ANYWHERE void many(std::byte* out, const std::byte* in) {
    struct {
      Pack at[kIn];
    } from;
    struct {
      Pack at[kOut];
    } to;
    TUTTI_UNROLL
    for (std::size_t p = 0; p < kIn; ++p) from.at[p] = load_pack(in + p * 16);
    const Inputs values = bits_as<Inputs>(from);
    Outputs results;
    TUTTI_UNROLL
    for (std::size_t i = 0; i < kWidth; ++i) results.at[i] = one(values.at[i]);
    to = bits_as<decltype(to)>(results);
    TUTTI_UNROLL
    for (std::size_t p = 0; p < kOut; ++p) store_pack(out + p * 16, to.at[p]);
  }

  static TUTTI_ANYWHERE void single(const Arguments& a, std::size_t i) {
    From value;
    __builtin_memcpy(&value, a.in + i * sizeof(From), sizeof(From));
    const To result = one(value);
    __builtin_memcpy(a.out + i * sizeof(To), &result, sizeof(To));
  }

  template <class Thread>
  TUTTI_ANYWHERE void operator()(const Arguments& a, Thread& thread) const {
    const std::size_t in_head = unaligned_elements(a.in, sizeof(From), a.count),
                      out_head = unaligned_elements(a.out, sizeof(To), a.count);
    const std::size_t head = in_head == out_head ? in_head : a.count;
    const std::size_t blocks = (a.count - head) / kWidth, loose = a.count - blocks * kWidth;
    for (std::size_t i = thread.index(); i < blocks; i += thread.count())
      many(a.out + (head + i * kWidth) * sizeof(To), a.in + (head + i * kWidth) * sizeof(From));
    for (std::size_t i = thread.index(); i < loose; i += thread.count()) single(a, i < head ? i : i + blocks * kWidth);
  }
};

// Bytes.
using Copy = Cast<DataType::u8, DataType::u8>;

}  // namespace tutti::kernels::cuda
