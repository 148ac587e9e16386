// Vectors of one SIMD level, and what the compilers' vector extension does badly: zero-extending 8- and 16-bit lanes to
// 32 and packing them again. Included by kernels/body.h only, and like it compiled for one instruction set at a time.
#include <kernels/convert.h>

#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

namespace tutti::kernels {
namespace {

constexpr std::size_t kVectorBytes = TUTTI_VECTOR_BYTES;

template <class T, std::size_t Lanes>
struct VectorOf {
  typedef T type __attribute__((vector_size(sizeof(T) * Lanes)));
};
template <class T, std::size_t Lanes>
using Vector = typename VectorOf<T, Lanes>::type;

constexpr std::size_t kWords = kVectorBytes / 4;
using Words = Vector<std::uint32_t, kWords>;

template <class V>
TUTTI_INLINE V load_as(const std::byte* from) {
  V value;
  __builtin_memcpy(&value, from, sizeof value);
  return value;
}
template <class V>
TUTTI_INLINE void store_as(std::byte* to, V value) {
  __builtin_memcpy(to, &value, sizeof value);
}

// kWords values of kBytes (1 or 2) each, zero-extended; and back, where the high bits are zero.
template <std::size_t kBytes>
TUTTI_INLINE Words load_words(const std::byte* from) {
#if TUTTI_VECTOR_BYTES == 64
  if constexpr (kBytes == 1)
    return (Words)_mm512_maskz_cvtepu8_epi32(0xffff, load_as<__m128i>(from));
  else
    return (Words)_mm512_maskz_cvtepu16_epi32(0xffff, load_as<__m256i>(from));
#elif TUTTI_VECTOR_BYTES == 32
  if constexpr (kBytes == 1)
    return (Words)_mm256_cvtepu8_epi32(_mm_cvtsi64_si128(load_as<long long>(from)));
  else
    return (Words)_mm256_cvtepu16_epi32(load_as<__m128i>(from));
#elif defined(__x86_64__)
  const __m128i zero = _mm_setzero_si128();
  if constexpr (kBytes == 1)
    return (Words)_mm_unpacklo_epi16(_mm_unpacklo_epi8(_mm_cvtsi32_si128(load_as<int>(from)), zero), zero);
  else
    return (Words)_mm_unpacklo_epi16(_mm_cvtsi64_si128(load_as<long long>(from)), zero);
#else
  if constexpr (kBytes == 1)
    return __builtin_convertvector((load_as<Vector<std::uint8_t, kWords>>(from)), Words);
  else
    return __builtin_convertvector((load_as<Vector<std::uint16_t, kWords>>(from)), Words);
#endif
}

template <std::size_t kBytes>
TUTTI_INLINE void store_words(std::byte* to, Words words) {
#if TUTTI_VECTOR_BYTES == 64
  if constexpr (kBytes == 1)
    store_as(to, _mm512_maskz_cvtepi32_epi8(0xffff, (__m512i)words));
  else
    store_as(to, _mm512_maskz_cvtepi32_epi16(0xffff, (__m512i)words));
#elif TUTTI_VECTOR_BYTES == 32
  const __m128i halves =
      _mm_packus_epi32(_mm256_castsi256_si128((__m256i)words), _mm256_extracti128_si256((__m256i)words, 1));
  if constexpr (kBytes == 1)
    store_as(to, (long long)_mm_cvtsi128_si64(_mm_packus_epi16(halves, halves)));
  else
    store_as(to, halves);
#elif defined(__x86_64__)
  if constexpr (kBytes == 1) {
    const __m128i halves = _mm_packs_epi32((__m128i)words, (__m128i)words);
    store_as(to, _mm_cvtsi128_si32(_mm_packus_epi16(halves, halves)));
  } else {  // SSE2 packs with signed saturation: sign-extend first
    const __m128i extended = _mm_srai_epi32(_mm_slli_epi32((__m128i)words, 16), 16);
    store_as(to, (long long)_mm_cvtsi128_si64(_mm_packs_epi32(extended, extended)));
  }
#else
  if constexpr (kBytes == 1)
    store_as(to, __builtin_convertvector(words, Vector<std::uint8_t, kWords>));
  else
    store_as(to, __builtin_convertvector(words, Vector<std::uint16_t, kWords>));
#endif
}

// kWords f16 to and from f32, where the processor converts. NaN inputs of to_half must already have the payload that is
// wanted.
#if TUTTI_VECTOR_BYTES == 64
#define TUTTI_HALVES 1
// In g++ 12 the unmasked intrinsics trip -Wmaybe-uninitialized; a full mask compiles to the same instructions.
TUTTI_INLINE Vector<float, kWords> from_half(Vector<std::uint16_t, kWords> half) {
  return (Vector<float, kWords>)_mm512_maskz_cvtph_ps(0xffff, (__m256i)half);
}
TUTTI_INLINE Vector<std::uint16_t, kWords> to_half(Vector<float, kWords> value) {
  return (Vector<std::uint16_t, kWords>)_mm512_maskz_cvtps_ph(0xffff, (__m512)value, _MM_FROUND_TO_NEAREST_INT);
}
TUTTI_INLINE Vector<std::uint16_t, kWords> load_bytes(const std::byte* from) {
  return (Vector<std::uint16_t, kWords>)_mm256_cvtepu8_epi16(load_as<__m128i>(from));
}
#elif TUTTI_VECTOR_BYTES == 32
#define TUTTI_HALVES 1
TUTTI_INLINE Vector<float, kWords> from_half(Vector<std::uint16_t, kWords> half) {
  return (Vector<float, kWords>)_mm256_cvtph_ps((__m128i)half);
}
TUTTI_INLINE Vector<std::uint16_t, kWords> to_half(Vector<float, kWords> value) {
  return (Vector<std::uint16_t, kWords>)_mm256_cvtps_ph((__m256)value, _MM_FROUND_TO_NEAREST_INT);
}
TUTTI_INLINE Vector<std::uint16_t, kWords> load_bytes(const std::byte* from) {
  return (Vector<std::uint16_t, kWords>)_mm_cvtepu8_epi16(_mm_cvtsi64_si128(load_as<long long>(from)));
}
#elif defined(__aarch64__)
#define TUTTI_HALVES 1
TUTTI_INLINE Vector<float, kWords> from_half(Vector<std::uint16_t, kWords> half) {
  return (Vector<float, kWords>)vcvt_f32_f16((float16x4_t)half);
}
TUTTI_INLINE Vector<std::uint16_t, kWords> to_half(Vector<float, kWords> value) {
  return (Vector<std::uint16_t, kWords>)vcvt_f16_f32((float32x4_t)value);
}
TUTTI_INLINE Vector<std::uint16_t, kWords> load_bytes(const std::byte* from) {
  const uint8x8_t eight = vreinterpret_u8_u32(vdup_n_u32(load_as<std::uint32_t>(from)));
  return (Vector<std::uint16_t, kWords>)vget_low_u16(vmovl_u8(eight));
}
#else
#define TUTTI_HALVES 0
#endif

}  // namespace
}  // namespace tutti::kernels
