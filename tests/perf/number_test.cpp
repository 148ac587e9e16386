// Number formats, against the compiler's own conversions and the published tables of small formats.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <random>

#include "perf/driver/number.h"

namespace tutti::perf {
namespace {

TEST(Number, FloatIsTheCompilersFloat) {
  std::mt19937_64 random(7);
  for (int i = 0; i < 200000; ++i) {
    const std::uint32_t bits = std::uint32_t(random());
    const float value = std::bit_cast<float>(bits);
    if (std::isnan(value)) continue;
    EXPECT_EQ(decode(DataType::f32, bits), double(value));
    EXPECT_EQ(encode(DataType::f32, double(value)), bits);
    const double wide = double(value) * (1 + std::ldexp(double(random() >> 12), -75));
    EXPECT_EQ(encode(DataType::f32, wide), std::bit_cast<std::uint32_t>(float(wide))) << wide;
  }
}
TEST(Number, Bfloat16IsTheUpperHalfOfFloat) {
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    const float value = std::bit_cast<float>(bits << 16);
    if (std::isnan(value)) continue;
    EXPECT_EQ(decode(DataType::bf16, bits), double(value));
  }
}
TEST(Number, EveryNarrowNumberComesBack) {
  for (DataType type : {DataType::f16, DataType::bf16, DataType::f8e4m3, DataType::f8e5m2})
    for (std::uint64_t bits = 0; bits < 1u << (8 * size_of(type)); ++bits)
      if (const double value = decode(type, bits); !std::isnan(value)) {
        EXPECT_EQ(encode(type, value), bits) << name_of(type);
      }
}
TEST(Number, HalfwayGoesToEven) {
  for (DataType type : {DataType::f16, DataType::bf16, DataType::f8e4m3, DataType::f8e5m2}) {
    const std::uint64_t positive = (1u << (8 * size_of(type) - 1)) - 1;
    for (std::uint64_t bits = 0; bits < positive; ++bits) {
      const double low = decode(type, bits), high = decode(type, bits + 1);
      if (!std::isfinite(low) || !std::isfinite(high)) continue;
      EXPECT_EQ(encode(type, (low + high) / 2), bits % 2 ? bits + 1 : bits);
      EXPECT_EQ(encode(type, std::nextafter((low + high) / 2, INFINITY)), bits + 1);
      EXPECT_EQ(encode(type, -std::nextafter((low + high) / 2, 0)), bits | (positive + 1));
    }
  }
}
TEST(Number, PublishedEnds) {
  EXPECT_EQ(decode(DataType::f8e4m3, 0x7e), 448);
  EXPECT_EQ(decode(DataType::f8e5m2, 0x7b), 57344);
  EXPECT_EQ(decode(DataType::f16, 0x7bff), 65504);
  EXPECT_EQ(decode(DataType::f8e4m3, 0x01), std::ldexp(1.0, -9));
  EXPECT_EQ(decode(DataType::f16, 0x0001), std::ldexp(1.0, -24));
  EXPECT_EQ(smallest_step(DataType::f8e4m3), std::ldexp(1.0, -9));
  EXPECT_EQ(smallest_step(DataType::f16), std::ldexp(1.0, -24));
  EXPECT_EQ(encode(DataType::f8e4m3, 1e9), 0x7eu);  // saturates
  EXPECT_EQ(encode(DataType::f8e5m2, 1e9), 0x7cu);  // infinity
  EXPECT_TRUE(std::isnan(decode(DataType::f8e4m3, 0x7f)));
}

}  // namespace
}  // namespace tutti::perf
