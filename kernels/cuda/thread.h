#pragma once
// What a kernel's body may use of the machine that it runs on. A body is a functor, called once a thread:
//   template <class Thread> TUTTI_ANYWHERE void operator()(const Arguments& arguments, Thread& thread) const;
// On a GPU, Thread is CudaThread (kernels/cuda/launch.cuh); in tests it is one of an emulated grid, so the same source
// runs without a GPU. A Thread has
//   index(), count()          this thread of the whole grid, and how many there are
//   block(), in_block(), block_size()
//   sync()                    all threads of the block meet
//   any(flag)                 sync(), and whether any of them said true
//   acquire(word), release(word, value)     a std::uint32_t that other devices and the host see, too
//   pause()                   between two looks at such a word
#include <cstddef>
#include <cstdint>

#if defined(__CUDACC__)
#define TUTTI_ANYWHERE __host__ __device__ __forceinline__
#define TUTTI_ANYWHERE_ONCE \
  inline __host__ __device__ __noinline__  // one copy of a large function: the compiler takes minutes
#define TUTTI_UNROLL _Pragma("unroll")
#else
#define TUTTI_ANYWHERE __attribute__((always_inline)) inline
#define TUTTI_ANYWHERE_ONCE inline
#define TUTTI_UNROLL
#endif

namespace tutti::kernels::cuda {

// What one access moves. In PTX ld.global.v4 and st.global.v4.
struct alignas(16) Pack {
  std::uint32_t words[4];
};
static_assert(sizeof(Pack) == 16);

// The compiler cannot tell that a pointer out of a struct is to global memory; the instructions can be told.
TUTTI_ANYWHERE Pack load_pack(const std::byte* from) {
#if defined(__CUDA_ARCH__)
  Pack pack;
  asm volatile("ld.global.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(pack.words[0]), "=r"(pack.words[1]), "=r"(pack.words[2]), "=r"(pack.words[3])
               : "l"(__cvta_generic_to_global(from)));
  return pack;
#else
  return *reinterpret_cast<const Pack*>(from);  // misaligned: found by the sanitizer
#endif
}

TUTTI_ANYWHERE void store_pack(std::byte* to, const Pack& pack) {
#if defined(__CUDA_ARCH__)
  asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(__cvta_generic_to_global(to)), "r"(pack.words[0]),
               "r"(pack.words[1]), "r"(pack.words[2]), "r"(pack.words[3])
               : "memory");
#else
  *reinterpret_cast<Pack*>(to) = pack;
#endif
}

// Elements before the first that lies on a boundary of 16 bytes; `count` when none does (an address that is odd for its
// type).
TUTTI_ANYWHERE std::size_t unaligned_elements(const std::byte* at, std::size_t element, std::size_t count) {
  const std::size_t before = (16 - std::uintptr_t(at) % 16) % 16;
  if (before % element != 0) return count;
  return before / element < count ? before / element : count;
}

}  // namespace tutti::kernels::cuda
