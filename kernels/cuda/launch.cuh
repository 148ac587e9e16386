#pragma once
// The one way onto the GPU: a body (kernels/cuda/thread.h) becomes a kernel and is launched by launch(). Included by
// the .cu files alone.
#include <cuda_runtime.h>
#include <kernels/cuda/table.h>
#include <kernels/cuda/thread.h>

namespace tutti::kernels::cuda {

struct CudaThread {
  static __device__ __forceinline__ std::size_t index() { return std::size_t(blockIdx.x) * blockDim.x + threadIdx.x; }
  static __device__ __forceinline__ std::size_t count() { return std::size_t(gridDim.x) * blockDim.x; }
  static __device__ __forceinline__ std::size_t block() { return blockIdx.x; }
  static __device__ __forceinline__ std::size_t in_block() { return threadIdx.x; }
  static __device__ __forceinline__ std::size_t block_size() { return blockDim.x; }
  static __device__ __forceinline__ void sync() { __syncthreads(); }
  static __device__ __forceinline__ bool any(bool flag) { return __syncthreads_or(flag) != 0; }
  static __device__ __forceinline__ void pause() { __nanosleep(100); }
  static __device__ __forceinline__ std::uint32_t acquire(const std::uint32_t* word) {
    std::uint32_t value;
    asm volatile("ld.acquire.sys.u32 %0, [%1];" : "=r"(value) : "l"(word) : "memory");
    return value;
  }
  static __device__ __forceinline__ void release(std::uint32_t* word, std::uint32_t value) {
    asm volatile("st.release.sys.u32 [%0], %1;" ::"l"(word), "r"(value) : "memory");
  }
};

// Arguments stay where the launch has put them, for functions that take them by address and for indices that are not known
// when compiled: without __grid_constant__ each thread would have a copy of its own in local memory.
template <class Body>
__global__ void __launch_bounds__(kThreads) run(const __grid_constant__ typename Body::Arguments arguments) {
  CudaThread thread;
  Body{}(arguments, thread);
}

template <class Body>
int launch(int blocks, void* stream, const void* arguments) {
  run<Body><<<unsigned(blocks), kThreads, 0, static_cast<cudaStream_t>(stream)>>>(
      *static_cast<const typename Body::Arguments*>(arguments));
  return int(cudaGetLastError());
}

}  // namespace tutti::kernels::cuda
