// crc32c against RFC 3720's vectors and a division done bit by bit; every way that this processor has against tables.
#include <core/crc32c.h>
#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

namespace tutti {
namespace {

// RFC 3720, B.4 (there in the order of the bytes on the wire).
TEST(Crc32c, Rfc3720) {
  std::vector<unsigned char> zeros(32, 0), ones(32, 0xff), up(32), down(32);
  for (unsigned i = 0; i < 32; ++i) up[i] = static_cast<unsigned char>(i), down[i] = static_cast<unsigned char>(31 - i);
  const unsigned char read_command[48] = {0x01, 0xc0, 0, 0, 0, 0, 0,    0, 0,    0, 0, 0,    0, 0, 0, 0,
                                          0x14, 0,    0, 0, 0, 0, 0x04, 0, 0,    0, 0, 0x14, 0, 0, 0, 0x18,
                                          0x28, 0,    0, 0, 0, 0, 0,    0, 0x02, 0, 0, 0,    0, 0, 0, 0};
  for (const auto& [name, function] : crc32c_ways()) {
    SCOPED_TRACE(name);
    EXPECT_EQ(function(zeros.data(), 32, 0), 0x8a9136aau);
    EXPECT_EQ(function(ones.data(), 32, 0), 0x62a8ab43u);
    EXPECT_EQ(function(up.data(), 32, 0), 0x46dd794eu);
    EXPECT_EQ(function(down.data(), 32, 0), 0x113fdb5cu);
    EXPECT_EQ(function(read_command, 48, 0), 0xd9963a56u);
    EXPECT_EQ(function("123456789", 9, 0), 0xe3069283u);
    EXPECT_EQ(function(nullptr, 0, 0), 0u);
  }
}

// The message as a polynomial, most significant first, divided by 0x1edc6f41 one bit at a time.
std::uint32_t divided(const std::vector<unsigned char>& data, std::size_t from, std::size_t bytes) {
  std::uint32_t remainder = 0xffffffff;
  for (std::size_t i = 0; i < bytes; ++i)
    for (int bit = 0; bit < 8; ++bit) {
      const bool out = (remainder >> 31) != ((data[from + i] >> bit) & 1u);
      remainder = (remainder << 1) ^ (out ? 0x1edc6f41u : 0);
    }
  std::uint32_t reflected = 0;
  for (int bit = 0; bit < 32; ++bit) reflected |= ((~remainder >> bit) & 1u) << (31 - bit);
  return reflected;
}

TEST(Crc32c, AnyLengthAlignmentAndContinuation) {
  std::mt19937_64 random(3);
  std::vector<unsigned char> data(60000);
  for (auto& byte : data) byte = static_cast<unsigned char>(random());
  std::vector<std::size_t> lengths;
  for (std::size_t n = 0; n < 300; ++n) lengths.push_back(n);
  for (const std::size_t n : {767, 768, 769, 1023, 1024, 1025, 1535, 1536, 2311, 8191, 8192, 8193, 12287, 12288, 12289,
                              13057, 24576, 50003})
    lengths.push_back(n);
  for (const std::size_t length : lengths) {
    const std::size_t from = random() % 64;
    const std::uint32_t expected = divided(data, from, length);
    ASSERT_EQ(crc32c(data.data() + from, length), expected) << length;
    for (const auto& [name, function] : crc32c_ways())
      ASSERT_EQ(function(data.data() + from, length, 0), expected) << name << ' ' << length;
    const std::size_t cut = length == 0 ? 0 : random() % length;
    ASSERT_EQ(crc32c(data.data() + from + cut, length - cut, crc32c(data.data() + from, cut)), expected)
        << length << " at " << cut;
  }
}

TEST(Crc32c, EveryWayIsTheTables) {
  std::mt19937_64 random(4);
  std::vector<unsigned char> data(20100);
  for (auto& byte : data) byte = static_cast<unsigned char>(random());
  const auto tables = crc32c_ways().front();
  for (std::size_t length = 0; length <= 20000; length += length < 2200 ? 1 : 2 + random() % 16) {
    const std::size_t from = random() % 64;
    const auto before = static_cast<std::uint32_t>(random());
    const std::uint32_t expected = tables.function(data.data() + from, length, before);
    for (const auto& [name, function] : crc32c_ways().subspan(1))
      ASSERT_EQ(function(data.data() + from, length, before), expected)
          << name << ", " << length << " bytes from " << from << " on, continuing from " << before;
  }
}

#if defined(__x86_64__)
TEST(Crc32c, UsesWhatTheProcessorHas) {
  __builtin_cpu_init();
  std::vector<std::string> names, expected{"tables"};
  for (const CrcWay& way : crc32c_ways()) names.emplace_back(way.name);
  if (__builtin_cpu_supports("sse4.2")) expected.emplace_back("instruction");
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("pclmul") && __builtin_cpu_supports("vpclmulqdq"))
    expected.emplace_back("folding");
  EXPECT_EQ(names, expected);
}
#endif

TEST(Crc32c, SeesEveryFlippedBit) {
  std::vector<unsigned char> data(1000, 0x5a);
  const std::uint32_t before = crc32c(data.data(), data.size());
  for (std::size_t bit = 0; bit < data.size() * 8; ++bit) {
    data[bit / 8] = static_cast<unsigned char>(data[bit / 8] ^ (1u << (bit % 8)));
    ASSERT_NE(crc32c(data.data(), data.size()), before) << bit;
    data[bit / 8] = static_cast<unsigned char>(data[bit / 8] ^ (1u << (bit % 8)));
  }
}

}  // namespace
}  // namespace tutti
