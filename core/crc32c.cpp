// CRC32C three ways: the processor's instruction on three interleaved streams, its AArch64 sibling likewise, and
// tables. The instruction takes three cycles and one can start each cycle, hence three streams; their CRCs are joined
// by moving one over the length of the next (multiplication by x^(8 * length) modulo the polynomial, by table). No
// other CRC lives here.
#include <core/crc32c.h>

#include <array>
#include <cstring>

#if defined(__x86_64__)
#include <nmmintrin.h>
#elif defined(__aarch64__)
#include <arm_acle.h>
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

namespace tutti {
namespace {

constexpr std::uint32_t kPolynomial = 0x82f63b78;  // reflected: bit 31 is x^0

using ByteTable = std::array<std::uint32_t, 256>;

// table[k][b]: the CRC register after byte b and k zero bytes, from a register of zero.
constexpr std::array<ByteTable, 8> make_byte_tables() {
  std::array<ByteTable, 8> tables{};
  for (std::uint32_t b = 0; b < 256; ++b) {
    std::uint32_t crc = b;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ (crc & 1 ? kPolynomial : 0);
    tables[0][b] = crc;
  }
  for (std::size_t k = 1; k < 8; ++k)
    for (std::size_t b = 0; b < 256; ++b) tables[k][b] = (tables[k - 1][b] >> 8) ^ tables[0][tables[k - 1][b] & 0xff];
  return tables;
}
constexpr auto kTables = make_byte_tables();

std::uint64_t load_little(const unsigned char* from) {
  std::uint64_t word;
  std::memcpy(&word, from, sizeof word);
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
  word = __builtin_bswap64(word);
#endif
  return word;
}

// The register, not inverted, after the bytes; eight at a time ("slicing by 8", Kounavis and Berry 2005).
std::uint32_t by_tables(std::uint32_t crc, const unsigned char* data, std::size_t bytes) {
  for (; bytes >= 8; data += 8, bytes -= 8) {
    const std::uint64_t word = load_little(data) ^ crc;
    crc = 0;
    for (std::size_t k = 0; k < 8; ++k) crc ^= kTables[7 - k][(word >> (8 * k)) & 0xff];
  }
  for (; bytes != 0; ++data, --bytes) crc = (crc >> 8) ^ kTables[0][(crc ^ *data) & 0xff];
  return crc;
}

#if defined(__x86_64__) || defined(__aarch64__)

// a * b modulo the polynomial, both reflected.
constexpr std::uint32_t multiply(std::uint32_t a, std::uint32_t b) {
  std::uint32_t product = 0;
  for (; a != 0; a <<= 1) {
    if (a & 0x80000000u) product ^= b;
    b = (b >> 1) ^ (b & 1 ? kPolynomial : 0);
  }
  return product;
}

// Moves a register over kBytes zero bytes, a power of two.
template <std::size_t kBytes>
struct Shift {
  static_assert((kBytes & (kBytes - 1)) == 0);
  static constexpr std::array<ByteTable, 4> make() {
    std::uint32_t factor = 0x00800000;  // x^8: one byte
    for (std::size_t reached = 1; reached < kBytes; reached *= 2) factor = multiply(factor, factor);
    std::array<ByteTable, 4> table{};
    for (std::uint32_t k = 0; k < 4; ++k)
      for (std::uint32_t b = 0; b < 256; ++b) table[k][b] = multiply(b << (8 * k), factor);
    return table;
  }
  static constexpr std::array<ByteTable, 4> kTable = make();
  static std::uint32_t apply(std::uint32_t crc) {
    return kTable[0][crc & 0xff] ^ kTable[1][(crc >> 8) & 0xff] ^ kTable[2][(crc >> 16) & 0xff] ^ kTable[3][crc >> 24];
  }
};

#if defined(__x86_64__)
#define TUTTI_CRC_TARGET __attribute__((target("sse4.2")))
TUTTI_CRC_TARGET inline std::uint32_t step8(std::uint32_t crc, std::uint64_t word) {
  return std::uint32_t(_mm_crc32_u64(crc, word));
}
TUTTI_CRC_TARGET inline std::uint32_t step1(std::uint32_t crc, unsigned char byte) { return _mm_crc32_u8(crc, byte); }
bool has_instruction() {
  __builtin_cpu_init();
  return __builtin_cpu_supports("sse4.2");
}
#else
#define TUTTI_CRC_TARGET __attribute__((target("+crc")))
TUTTI_CRC_TARGET inline std::uint32_t step8(std::uint32_t crc, std::uint64_t word) { return __crc32cd(crc, word); }
TUTTI_CRC_TARGET inline std::uint32_t step1(std::uint32_t crc, unsigned char byte) { return __crc32cb(crc, byte); }
bool has_instruction() { return (getauxval(AT_HWCAP) & HWCAP_CRC32) != 0; }
#endif

template <std::size_t kBytes>
TUTTI_CRC_TARGET void three_streams(std::uint32_t& crc, const unsigned char*& data, std::size_t& bytes) {
  while (bytes >= 3 * kBytes) {
    std::uint32_t first = crc, second = 0, third = 0;
    for (std::size_t i = 0; i < kBytes; i += 8) {
      first = step8(first, load_little(data + i));
      second = step8(second, load_little(data + kBytes + i));
      third = step8(third, load_little(data + 2 * kBytes + i));
    }
    crc = Shift<kBytes>::apply(Shift<kBytes>::apply(first) ^ second) ^ third;
    data += 3 * kBytes;
    bytes -= 3 * kBytes;
  }
}

TUTTI_CRC_TARGET std::uint32_t by_instruction(std::uint32_t crc, const unsigned char* data, std::size_t bytes) {
  three_streams<4096>(crc, data, bytes);  // 12 KB at a time: joining costs 1 %
  three_streams<256>(crc, data, bytes);
  for (; bytes >= 8; data += 8, bytes -= 8) crc = step8(crc, load_little(data));
  for (; bytes != 0; ++data, --bytes) crc = step1(crc, *data);
  return crc;
}

#endif

}  // namespace

std::uint32_t crc32c(const void* data, std::size_t bytes, std::uint32_t crc) {
  const auto* from = static_cast<const unsigned char*>(data);
#if defined(__x86_64__) || defined(__aarch64__)
  static const bool fast = has_instruction();
  if (fast) return ~by_instruction(~crc, from, bytes);
#endif
  return ~by_tables(~crc, from, bytes);
}

std::uint32_t crc32c_by_tables(const void* data, std::size_t bytes, std::uint32_t crc) {
  return ~by_tables(~crc, static_cast<const unsigned char*>(data), bytes);
}

}  // namespace tutti
