#pragma once
// One value from any element type to any other, through a wide type that holds every value of the source and is rounded
// from there. cast_values and the kernels of a GPU share it, so they cannot disagree. Narrow floats are named by their
// format.
#include <kernels/convert.h>

#include <limits>
#include <type_traits>

namespace tutti::kernels {

// f64 for floats, the 64-bit integer of its sign otherwise.
template <class T>
using WideOf = std::conditional_t<!std::is_integral_v<T>, double,
                                  std::conditional_t<std::is_signed_v<T>, std::int64_t, std::uint64_t>>;

template <class T, bool = std::is_arithmetic_v<T>>
struct StoredOf {
  using type = T;
};
template <class T>
struct StoredOf<T, false> {
  using type = typename T::Bits;
};
template <class T>
using Stored = typename StoredOf<T>::type;

template <class T>
TUTTI_INLINE constexpr WideOf<T> cast_read(Stored<T> value) {
  if constexpr (std::is_arithmetic_v<T>)
    return WideOf<T>(value);
  else
    return double(to_f32<T>(value));
}

// To f64 with round-to-odd, so that one more rounding, to 24 bits or fewer, is as good as one alone.
template <class Integer>
TUTTI_INLINE constexpr double odd_double(Integer value) {
  const bool negative = std::is_signed_v<Integer> && value < 0;
  std::uint64_t magnitude = negative ? 0 - std::uint64_t(value) : std::uint64_t(value);
  if (magnitude >> 53)
    magnitude = (magnitude & ~std::uint64_t(0x7ff)) | (std::uint64_t((magnitude & 0x7ff) != 0) << 11);
  return negative ? -double(magnitude) : double(magnitude);
}

template <class T>
TUTTI_INLINE constexpr T saturated(double value) {
  constexpr T most = std::numeric_limits<T>::max(), least = std::numeric_limits<T>::min();
  constexpr double beyond = double(most / 2 + 1) * 2;  // most + 1, which f64 holds
  if (value != value) return 0;
  if (value >= beyond) return most;
  if (value <= double(least)) return least;
  return T(value);
}

template <class T, class Wide>
TUTTI_INLINE constexpr Stored<T> cast_write(Wide value) {
  if constexpr (std::is_integral_v<T>) {
    if constexpr (std::is_integral_v<Wide>)
      return T(value);
    else
      return saturated<T>(value);
  } else if constexpr (std::is_floating_point_v<T>) {
    const T rounded = T(value);
    if constexpr (sizeof(T) == 8)
      return rounded == rounded ? rounded : __builtin_bit_cast(T, kNanF64);
    else
      return rounded == rounded ? rounded : __builtin_bit_cast(T, kNanF32);
  } else if constexpr (std::is_integral_v<Wide>) {
    return from_f64<T>(odd_double(value));
  } else {
    return from_f64<T>(value);
  }
}

}  // namespace tutti::kernels
