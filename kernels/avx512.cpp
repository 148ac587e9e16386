// The loops for AVX-512 F, BW, VL and DQ (kernels/simd.cmake sets the flags). Empty on other architectures.
#include <kernels/table.h>
#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512VL__) && defined(__AVX512DQ__)
#define TUTTI_VECTOR_BYTES 64
#include <kernels/body.h>

namespace tutti::kernels {
const Table* avx512_table() { return &kTable; }
}  // namespace tutti::kernels
#else
namespace tutti::kernels {
const Table* avx512_table() { return nullptr; }
}  // namespace tutti::kernels
#endif
