// The loops for AVX2 with F16C (kernels/simd.cmake sets the flags). Empty on other architectures.
#include <kernels/table.h>
#if defined(__AVX2__) && defined(__F16C__)
#define TUTTI_VECTOR_BYTES 32
#include <kernels/body.h>

namespace tutti::kernels {
const Table* avx2_table() { return &kTable; }
}  // namespace tutti::kernels
#else
namespace tutti::kernels {
const Table* avx2_table() { return nullptr; }
}  // namespace tutti::kernels
#endif
