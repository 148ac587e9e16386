// CRC32C four ways: tables; the processor's instruction on three interleaved streams, its AArch64 sibling likewise; and
// on x86-64 with 32-byte carry-less multiplication the instruction and folding together. The instruction takes three
// cycles and one can start each cycle, hence three streams; their CRCs are joined by moving one over the length of the
// next (multiplication by x^(8 * length) modulo the polynomial, by table).
//
// Folding (Gopal et al., "Fast CRC Computation for Generic Polynomials Using PCLMULQDQ Instruction", Intel 2009) adds
// to bytes further on what those before them leave there: 16 bytes times x^distance modulo the polynomial, which takes
// two multiplications. On Zen 3 that is 8 bytes a cycle, as many as the instruction does, but another unit of the core
// does it: one half of each block is folded while the other goes through the instruction, in four streams (one more
// than must be, so that a late one holds up nothing). No other CRC lives here.
#include <core/crc32c.h>

#include <array>
#include <cstring>

#if defined(__x86_64__)
#include <immintrin.h>
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

// x^exponent modulo the polynomial.
constexpr std::uint32_t power(std::uint64_t exponent) {
  std::uint32_t result = 0x80000000, square = 0x40000000;  // x^0 and x^1
  for (; exponent != 0; exponent /= 2, square = multiply(square, square))
    if (exponent % 2 != 0) result = multiply(result, square);
  return result;
}

// Moves a register over kBytes zero bytes.
template <std::size_t kBytes>
struct Shift {
  static constexpr std::array<ByteTable, 4> make() {
    constexpr std::uint32_t factor = power(8 * kBytes);
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

#if defined(__x86_64__)
#define TUTTI_FOLD_TARGET __attribute__((target("sse4.2,pclmul,avx2,vpclmulqdq")))

bool has_folding() {
  __builtin_cpu_init();
  return __builtin_cpu_supports("sse4.2") && __builtin_cpu_supports("pclmul") && __builtin_cpu_supports("avx2") &&
         __builtin_cpu_supports("vpclmulqdq");
}

// What a word is multiplied by to move it over kBits. 33 of them come by themselves: the factor's 32 bits lie in the
// low half of their word, which in a reflected word stands for powers 32 higher, and the product of two words has 127
// bits, which begin at the lowest of 128: the next higher power.
template <std::uint64_t kBits>
inline constexpr std::uint32_t kFactor = power(kBits - 33);

// For the two words of 16 bytes; the one first in memory has 64 bits further to go.
template <std::uint64_t kBits>
TUTTI_FOLD_TARGET inline __m128i fold_factors() {
  return _mm_set_epi64x(kFactor<kBits>, kFactor<kBits + 64>);
}

TUTTI_FOLD_TARGET inline __m128i moved(__m128i from, __m128i factors) {
  return _mm_xor_si128(_mm_clmulepi64_si128(from, factors, 0x00), _mm_clmulepi64_si128(from, factors, 0x11));
}

TUTTI_FOLD_TARGET inline __m256i moved(__m256i from, __m256i factors) {
  return _mm256_xor_si256(_mm256_clmulepi64_epi128(from, factors, 0x00),
                          _mm256_clmulepi64_epi128(from, factors, 0x11));
}

// A register moved over kBytes, but for the division that the instruction does: it raises by 32 powers, as the half
// word does above.
template <std::size_t kBytes>
TUTTI_FOLD_TARGET inline std::uint64_t undivided(std::uint64_t crc) {
  return std::uint64_t(_mm_cvtsi128_si64(_mm_clmulepi64_si128(
      _mm_cvtsi64_si128(std::int64_t(crc)), _mm_cvtsi64_si128(std::int64_t(kFactor<8 * kBytes>)), 0)));
}

TUTTI_FOLD_TARGET inline __m256i load_32(const unsigned char* from) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
}

// The register, from one of zero, after two vectors that follow each other.
TUTTI_FOLD_TARGET inline std::uint64_t divided(__m256i first, __m256i second) {
  const __m256i both = _mm256_xor_si256(moved(first, _mm256_broadcastsi128_si256(fold_factors<256>())), second);
  const __m128i last = _mm_xor_si128(moved(_mm256_castsi256_si128(both), fold_factors<128>()),
                                     _mm256_extracti128_si256(both, 1));
  return _mm_crc32_u64(_mm_crc32_u64(0, std::uint64_t(_mm_cvtsi128_si64(last))),
                       std::uint64_t(_mm_extract_epi64(last, 1)));
}

// Four streams of kStream bytes, one behind the other, each with a register of its own. The empty statements keep the
// compiler from scattering multiplications among the steps: Zen 3 decodes each by itself, and next to each other they
// leave it the most whole groups of six (48 GB/s instead of 40).
template <std::size_t kStream>
struct FourStreams {
  std::uint64_t crcs[4] = {};

  TUTTI_FOLD_TARGET __attribute__((always_inline)) void step(const unsigned char* from) {
    asm volatile("");
    crcs[0] = _mm_crc32_u64(crcs[0], load_little(from));
    crcs[1] = _mm_crc32_u64(crcs[1], load_little(from + kStream));
    crcs[2] = _mm_crc32_u64(crcs[2], load_little(from + 2 * kStream));
    crcs[3] = _mm_crc32_u64(crcs[3], load_little(from + 3 * kStream));
    asm volatile("");
  }
};

template <std::size_t kRounds>
TUTTI_FOLD_TARGET void fold_and_step(std::uint32_t& crc, const unsigned char*& data, std::size_t& bytes) {
  constexpr std::size_t kFolded = kRounds * 64, kStream = kRounds * 16, kBlock = kFolded + 4 * kStream;
  const __m256i by_64 = _mm256_broadcastsi128_si256(fold_factors<512>());
  for (; bytes >= kBlock; data += kBlock, bytes -= kBlock) {
    const unsigned char *fold = data, *stream = data + kFolded;
    FourStreams<kStream> four;
    __m256i first = load_32(fold), second = load_32(fold + 32);
    for (std::size_t round = 1; round < kRounds; ++round, stream += 16) {
      fold += 64;
      first = _mm256_xor_si256(moved(first, by_64), load_32(fold));
      four.step(stream);
      second = _mm256_xor_si256(moved(second, by_64), load_32(fold + 32));
      four.step(stream + 8);
    }
    four.step(stream);
    four.step(stream + 8);
    const std::uint64_t joined = undivided<kBlock>(crc) ^ undivided<4 * kStream>(divided(first, second)) ^
                                 undivided<3 * kStream>(four.crcs[0]) ^ undivided<2 * kStream>(four.crcs[1]) ^
                                 undivided<kStream>(four.crcs[2]);
    crc = std::uint32_t(_mm_crc32_u64(0, joined) ^ four.crcs[3]);
  }
}

TUTTI_FOLD_TARGET std::uint32_t by_folding(std::uint32_t crc, const unsigned char* data, std::size_t bytes) {
  if (bytes < 1024) return by_instruction(crc, data, bytes);
  fold_and_step<64>(crc, data, bytes);  // 8 KB at a time
  fold_and_step<8>(crc, data, bytes);
  return by_instruction(crc, data, bytes);
}
#endif

#endif

template <auto* kFunction>
std::uint32_t inverted(const void* data, std::size_t bytes, std::uint32_t crc) {
  return ~kFunction(~crc, static_cast<const unsigned char*>(data), bytes);
}

struct Ways {
  std::array<CrcWay, 3> found{{{"tables", inverted<by_tables>}}};
  std::size_t count = 1;

  Ways() {
#if defined(__x86_64__) || defined(__aarch64__)
    if (has_instruction()) found[count++] = {"instruction", inverted<by_instruction>};
#endif
#if defined(__x86_64__)
    if (has_folding()) found[count++] = {"folding", inverted<by_folding>};
#endif
  }
};

}  // namespace

std::span<const CrcWay> crc32c_ways() {
  static const Ways ways;
  return {ways.found.data(), ways.count};
}

std::uint32_t crc32c(const void* data, std::size_t bytes, std::uint32_t crc) {
  static const auto best = crc32c_ways().back().function;
  return best(data, bytes, crc);
}

}  // namespace tutti
