#pragma once
// What the body of a kernel may use of the machine that it runs on. A body is a functor, called once a thread:
//   template <class Thread> TUTTI_BODY void operator()(const Arguments& a, Thread& thread, Shared& shared) const;
// `Shared` is one object a block. On a GPU, Thread is CudaThread (trainer/cuda/kernels.cu); in tests it is one of an emulated grid, so
// the same source runs without a GPU. A Thread has
//   index(), count()          this thread of the whole grid, and how many there are
//   block(), blocks()
//   in_block(), block_size()
//   sync()                    all threads of the block meet
//   any(flag)                 sync(), and whether any of them said true
//   sum(x), largest(x)        sync(), and that of all threads of the block, in an order of its own, the same each time
// Blocks know nothing of each other. A body is right with any number of blocks, and with any number of threads that is a multiple of
// kColumns, unless it names its kThreads. No body adds up in an order that chance decides: the same input gives the same bits.
#include <cstddef>
#include <cstdint>

#if defined(__CUDACC__)
#define TUTTI_BODY __host__ __device__ __forceinline__
#else
#define TUTTI_BODY __attribute__((always_inline)) inline
#endif

namespace tutti::trainer::cuda {

inline constexpr std::size_t kThreads = 256;        // of a block on a GPU, where the body does not say
inline constexpr std::size_t kColumns = 32;         // that a block adds up at a time, in as many rows as it has room for
struct Nothing {};                                  // what most bodies share

}  // namespace tutti::trainer::cuda
