// The loops for the plainest processor that this build runs on. No flags of their own: 16-byte vectors are what every
// x86-64 and AArch64 has, and elsewhere the compiler takes them apart.
#define TUTTI_VECTOR_BYTES 16
#include <kernels/body.h>

namespace tutti::kernels {
const Table* scalar_table() { return &kTable; }
}  // namespace tutti::kernels
