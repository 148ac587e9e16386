// cast_values: a strip is read into one of three wide types, then rounded from there.
#include <kernels/cast.h>

#include <cstdint>
#include <cstring>

#include <kernels/cast_value.h>

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

template <class T>
void read(WideOf<T>* out, const std::byte* in, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) out[i] = cast_read<T>(load<Stored<T>>(in, i));
}
template <class T, class Wide>
void write(std::byte* out, const Wide* in, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) store(out, i, cast_write<T>(in[i]));
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

std::uint64_t rounded_factor(DataType type, double factor) {
  std::byte rounded[8] = {};
  cast_values(type, rounded, DataType::f64, reinterpret_cast<const std::byte*>(&factor), 1);
  if (is_narrow_float(type)) {
    std::byte narrow[8];
    std::memcpy(narrow, rounded, sizeof narrow);
    cast_values(DataType::f32, rounded, type, narrow, 1);
  }
  return load<std::uint64_t>(rounded, 0);
}

}  // namespace tutti::kernels
