// The loops for AArch64, whose baseline has NEON and the f16 conversions. Empty on other architectures.
#include <kernels/table.h>
#if defined(__aarch64__)
#define TUTTI_VECTOR_BYTES 16
#include <kernels/body.h>

namespace tutti::kernels {
const Table* neon_table() { return &kTable; }
}  // namespace tutti::kernels
#else
namespace tutti::kernels {
const Table* neon_table() { return nullptr; }
}  // namespace tutti::kernels
#endif
