// cast and convert.h: every narrow value there and back, every rounding boundary from both sides, and all pairs of
// types, against tests/kernels/reference.h.
#include <gtest/gtest.h>

#include <kernels/convert.h>
#include <tests/kernels/reference.h>

namespace tutti::kernels {
namespace {

using namespace reference;

Bits bits_of_float(float value) {
  std::uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}
float float_of_bits(Bits bits) {
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

Bits scalar_widen(DataType type, Bits bits) {
  switch (type) {
    case DataType::f16: return bits_of_float(to_f32<F16>(std::uint16_t(bits)));
    case DataType::bf16: return bits_of_float(to_f32<Bf16>(std::uint16_t(bits)));
    case DataType::f8e4m3: return bits_of_float(to_f32<F8e4m3>(std::uint8_t(bits)));
    default: return bits_of_float(to_f32<F8e5m2>(std::uint8_t(bits)));
  }
}
Bits scalar_narrow(DataType type, Bits f32) {
  switch (type) {
    case DataType::f16: return from_f32<F16>(float_of_bits(f32));
    case DataType::bf16: return from_f32<Bf16>(float_of_bits(f32));
    case DataType::f8e4m3: return from_f32<F8e4m3>(float_of_bits(f32));
    default: return from_f32<F8e5m2>(float_of_bits(f32));
  }
}

std::vector<Bits> cast_all(DataType to, DataType from, const std::vector<Bits>& values) {
  std::vector<std::byte> in(values.size() * size_of(from) + 1), out(values.size() * size_of(to) + 1);
  for (std::size_t i = 0; i < values.size(); ++i) put(from, in.data() + 1, i, values[i]);
  cast(to, out.data() + 1, from, in.data() + 1, values.size());
  std::vector<Bits> result;
  for (std::size_t i = 0; i < values.size(); ++i) result.push_back(get(to, out.data() + 1, i));
  return result;
}

class NarrowFloat : public testing::TestWithParam<DataType> {};

TEST_P(NarrowFloat, EveryValueWidensExactlyAndComesBack) {
  const DataType type = GetParam();
  std::vector<Bits> all, wide, back;
  for (Bits bits = 0; bits <= mask_of(type); ++bits) {
    all.push_back(bits);
    wide.push_back(encode(DataType::f32, decode(type, bits)));
    back.push_back(is_nan(type, bits) ? layout_of(type).nan : bits);
    ASSERT_EQ(scalar_widen(type, bits), wide.back()) << std::hex << bits;
    ASSERT_EQ(scalar_narrow(type, wide.back()), back.back()) << std::hex << bits;
  }
  for (const SimdLevel level : levels()) {
    const LevelScope scope(level);
    ASSERT_EQ(cast_all(DataType::f32, type, all), wide) << kernels::name_of(level);
    ASSERT_EQ(cast_all(type, DataType::f32, wide), back) << kernels::name_of(level);
  }
}

// Between each two neighbours: the middle, and the f32 just below and above it.
TEST_P(NarrowFloat, RoundsToNearestEvenAtEveryBoundary) {
  const DataType type = GetParam();
  const Layout l = layout_of(type);
  std::vector<Bits> samples, expected;
  const auto add = [&](Bits f32) {
    samples.push_back(f32);
    expected.push_back(encode(type, decode(DataType::f32, f32)));
    ASSERT_EQ(scalar_narrow(type, f32), expected.back()) << std::hex << f32;
  };
  for (Bits bits = 0; decode(type, bits) < l.largest; ++bits) {
    const Bits middle = encode(DataType::f32, (decode(type, bits) + decode(type, bits + 1)) / 2);  // exact
    for (const Bits f32 : {middle - 1, middle, middle + 1}) add(f32), add(f32 | 0x80000000);
  }
  const Bits largest = encode(DataType::f32, l.largest);
  for (Bits f32 = largest; f32 < largest + 3000 && f32 < 0x7f800000; ++f32) add(f32);
  for (Bits f32 = 0; f32 < 0x100000000; f32 += 65521 / 8) add(f32);  // everywhere, NaNs and infinities included
  for (const SimdLevel level : levels()) {
    const LevelScope scope(level);
    ASSERT_EQ(cast_all(type, DataType::f32, samples), expected) << kernels::name_of(level);
  }
}

// From f64, values a hair beside the middle round as those: going through f32 to nearest would lose the hair.
TEST_P(NarrowFloat, RoundsOnceFromF64) {
  const DataType type = GetParam();
  std::vector<Bits> samples, expected;
  for (Bits bits = 0; decode(type, bits) < layout_of(type).largest; ++bits) {
    const Bits middle = encode(DataType::f64, (decode(type, bits) + decode(type, bits + 1)) / 2);
    for (const Bits f64 : {middle - 1, middle, middle + 1, (middle + 1) | (Bits(1) << 63)}) {
      samples.push_back(f64);
      expected.push_back(encode(type, decode(DataType::f64, f64)));
    }
  }
  EXPECT_EQ(cast_all(type, DataType::f64, samples), expected);
}

INSTANTIATE_TEST_SUITE_P(All, NarrowFloat, testing::ValuesIn(kNarrow),
                         [](const auto& type) { return std::string(tutti::name_of(type.param)); });

// Values of `type` that are likely to go wrong, and many others.
std::vector<Bits> samples_of(DataType type) {
  std::vector<Bits> result;
  std::mt19937_64 random(5);
  for (Bits bits = 0; bits < 256; ++bits) result.push_back(bits), result.push_back(mask_of(type) - bits);
  for (int bit = 0; bit < bits_of(type); ++bit)
    for (Bits off : {~Bits(0), Bits(0), Bits(1)}) result.push_back(((Bits(1) << bit) + off) & mask_of(type));
  for (const double edge :
       {127.5, 128.0, 255.9, 256.0, 2147483647.5, 2147483648.0, 4294967295.5, 4294967296.0, 9223372036854775808.0,
        18446744073709551616.0, 1.5e-40, 1e300, 448.0, 464.0, 480.0, 65519.9, 65520.0, 61440.0})
    for (const double signed_edge : {edge, -edge}) result.push_back(encode(type, Real(signed_edge)));
  for (int i = 0; i < 3000; ++i) {
    result.push_back(draw(type, Fill::wild, random));
    if (is_floating(type))
      result.push_back(encode(type, std::ldexp(Real(std::int64_t(random())), -int(random() % 70))));
    else
      result.push_back((random() >> (random() % 64)) & mask_of(type));
  }
  return result;
}

TEST(Cast, EveryPairOfTypes) {
  for (const DataType from : kTypes) {
    const std::vector<Bits> samples = samples_of(from);
    for (const DataType to : kTypes) {
      std::vector<Bits> expected;
      for (const Bits bits : samples) {
        if (from == to)
          expected.push_back(bits);
        else if (!is_floating(from) && !is_floating(to))
          expected.push_back(Bits(integer_value(from, bits)) & mask_of(to));
        else
          expected.push_back(encode(to, decode(from, bits)));
      }
      for (const SimdLevel level : levels()) {
        const LevelScope scope(level);
        const std::vector<Bits> got = cast_all(to, from, samples);
        for (std::size_t i = 0; i < samples.size(); ++i)
          ASSERT_EQ(got[i], expected[i]) << tutti::name_of(from) << " to " << tutti::name_of(to) << std::hex << ": "
                                         << samples[i];
      }
    }
  }
}

}  // namespace
}  // namespace tutti::kernels
