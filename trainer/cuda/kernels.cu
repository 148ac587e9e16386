// The bodies as kernels of a GPU.
#include <cuda_runtime.h>

#include "trainer/cuda/kernels.h"

namespace tutti::trainer::cuda {
namespace {

constexpr unsigned kWarp = 32, kEveryLane = 0xffffffffu;

struct CudaThread {
  static __device__ __forceinline__ std::size_t index() { return std::size_t(blockIdx.x) * blockDim.x + threadIdx.x; }
  static __device__ __forceinline__ std::size_t count() { return std::size_t(gridDim.x) * blockDim.x; }
  static __device__ __forceinline__ std::size_t block() { return blockIdx.x; }
  static __device__ __forceinline__ std::size_t blocks() { return gridDim.x; }
  static __device__ __forceinline__ std::size_t in_block() { return threadIdx.x; }
  static __device__ __forceinline__ std::size_t block_size() { return blockDim.x; }
  static __device__ __forceinline__ void sync() { __syncthreads(); }
  static __device__ __forceinline__ bool any(bool flag) { return __syncthreads_or(flag) != 0; }
  template <class T>
  static __device__ __forceinline__ T sum(T x) {
    return joined(x, [](T a, T b) { return a + b; });
  }
  template <class T>
  static __device__ __forceinline__ T largest(T x) {
    return joined(x, [](T a, T b) { return a < b ? b : a; });
  }

 private:
  // Lanes of a warp pairwise, then every thread over the warps, in their order.
  template <class T, class F>
  static __device__ __forceinline__ T joined(T x, F f) {
    __shared__ T of_warp[kThreads / kWarp];
    for (unsigned apart = kWarp / 2; apart > 0; apart /= 2) x = f(x, __shfl_xor_sync(kEveryLane, x, int(apart)));
    __syncthreads();      // all have read what an earlier call left
    if (threadIdx.x % kWarp == 0) of_warp[threadIdx.x / kWarp] = x;
    __syncthreads();
    x = of_warp[0];
    for (unsigned warp = 1; warp < blockDim.x / kWarp; ++warp) x = f(x, of_warp[warp]);
    return x;
  }
};

template <class Body>
__global__ void __launch_bounds__(threads_of<Body>()) run(const typename Body::Arguments arguments) {
  __shared__ typename Body::Shared shared;
  CudaThread thread;
  Body{}(arguments, thread, shared);
}

template <class Body>
int launch(std::size_t blocks, void* stream, const void* arguments) {
  run<Body><<<unsigned(blocks), unsigned(threads_of<Body>()), 0, static_cast<cudaStream_t>(stream)>>>(
      *static_cast<const typename Body::Arguments*>(arguments));
  return int(cudaGetLastError());
}

template <class... Bodies>
const Launch* table(List<Bodies...>) {
  static const Launch all[] = {launch<Bodies>...};
  return all;
}

}  // namespace

const Launch* launches() { return table(Kernels()); }

}  // namespace tutti::trainer::cuda
