// cast_values: read into one of three wide types that holds every value of the source, then round from there.
#include <kernels/cast.h>

#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>

#include <kernels/convert.h>

namespace tutti::kernels {
namespace {

template <class T>
T load(const std::byte* in, std::size_t i) {
  T value;
  std::memcpy(&value, in + i * sizeof(T), sizeof(T));
  return value;
}
template <class T>
void store(std::byte* out, std::size_t i, T value) {
  std::memcpy(out + i * sizeof(T), &value, sizeof(T));
}

// Tags: the type as a template argument; a narrow format stands for itself.
template <class T>
struct Tag {
  using Type = T;
};

// Calls f with the tag of `type`.
template <class F>
void with_type(DataType type, F f) {
  switch (type) {
    case DataType::i8: return f(Tag<std::int8_t>{});
    case DataType::u8: return f(Tag<std::uint8_t>{});
    case DataType::i32: return f(Tag<std::int32_t>{});
    case DataType::u32: return f(Tag<std::uint32_t>{});
    case DataType::i64: return f(Tag<std::int64_t>{});
    case DataType::u64: return f(Tag<std::uint64_t>{});
    case DataType::f16: return f(Tag<F16>{});
    case DataType::bf16: return f(Tag<Bf16>{});
    case DataType::f32: return f(Tag<float>{});
    case DataType::f64: return f(Tag<double>{});
    case DataType::f8e4m3: return f(Tag<F8e4m3>{});
    case DataType::f8e5m2: return f(Tag<F8e5m2>{});
  }
}

// The wide type of T: f64 for floats, the 64-bit integer of its sign otherwise.
template <class T>
using WideOf = std::conditional_t<!std::is_integral_v<T>, double,
                                  std::conditional_t<std::is_signed_v<T>, std::int64_t, std::uint64_t>>;

template <class T>
void read(WideOf<T>* out, const std::byte* in, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    if constexpr (std::is_arithmetic_v<T>)
      out[i] = WideOf<T>(load<T>(in, i));
    else
      out[i] = double(to_f32<T>(load<typename T::Bits>(in, i)));
  }
}

// To f64 with round-to-odd, so that one more rounding, to 24 bits or fewer, is as good as one alone.
template <class Integer>
double odd_double(Integer value) {
  const bool negative = std::is_signed_v<Integer> && value < 0;
  std::uint64_t magnitude = negative ? 0 - std::uint64_t(value) : std::uint64_t(value);
  if (magnitude >> 53)
    magnitude = (magnitude & ~std::uint64_t(0x7ff)) | (std::uint64_t((magnitude & 0x7ff) != 0) << 11);
  return negative ? -double(magnitude) : double(magnitude);
}

template <class T>
T saturated(double value) {
  constexpr double beyond = double(std::numeric_limits<T>::max() / 2 + 1) * 2;  // max + 1, which f64 holds
  if (value != value) return 0;
  if (value >= beyond) return std::numeric_limits<T>::max();
  if (value <= double(std::numeric_limits<T>::min())) return std::numeric_limits<T>::min();
  return T(value);
}

template <class T, class Wide>
void write(std::byte* out, const Wide* in, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    const Wide value = in[i];
    if constexpr (std::is_integral_v<T>) {
      if constexpr (std::is_integral_v<Wide>)
        store(out, i, T(value));
      else
        store(out, i, saturated<T>(value));
    } else if constexpr (std::is_floating_point_v<T>) {
      const T rounded = T(value);
      if constexpr (sizeof(T) == 8)
        store(out, i, rounded == rounded ? rounded : __builtin_bit_cast(T, kNanF64));
      else
        store(out, i, rounded == rounded ? rounded : __builtin_bit_cast(T, kNanF32));
    } else {
      if constexpr (std::is_integral_v<Wide>)
        store(out, i, from_f64<T>(odd_double(value)));
      else
        store(out, i, from_f64<T>(value));
    }
  }
}

}  // namespace

void cast_values(DataType to, std::byte* out, DataType from, const std::byte* in, std::size_t count) {
  constexpr std::size_t kStrip = 256;  // values: 2 KB of wide ones
  with_type(from, [&]<class From>(Tag<From>) {
    WideOf<From> wide[kStrip];
    for (std::size_t begin = 0; begin < count; begin += kStrip) {
      const std::size_t now = count - begin < kStrip ? count - begin : kStrip;
      read<From>(wide, in + begin * size_of(from), now);
      with_type(to, [&]<class To>(Tag<To>) { write<To>(out + begin * size_of(to), wide, now); });
    }
  });
}

}  // namespace tutti::kernels
