/* The functions of gpu.h by CUDA's runtime, for programs that run on twins elsewhere. */
#include <cuda_runtime_api.h>
#include <stdio.h>
#include <stdlib.h>

#include "perf/gpu/gpu.h"

static void must(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  fprintf(stderr, "%s: CUDA says %s (%s)\n", what, cudaGetErrorString(error), cudaGetErrorName(error));
  exit(1);
}

int gpu_count(void) {
  int count = 0;
  must(cudaGetDeviceCount(&count), "the number of GPUs");
  return count;
}

void gpu_use(int device) { must(cudaSetDevice(device), "a GPU"); }

void* gpu_allocate(size_t bytes) {
  void* memory = NULL;
  must(cudaMalloc(&memory, bytes), "memory of a GPU");
  return memory;
}

void gpu_release(void* memory) { must(cudaFree(memory), "memory to be freed"); }

gpu_stream gpu_make_stream(void) {
  cudaStream_t stream = NULL;
  must(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "a stream");
  return stream;
}

void gpu_copy(void* to, const void* from, size_t bytes, gpu_stream stream) {
  must(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream), "a copy");
}

void gpu_synchronize(gpu_stream stream) { must(cudaStreamSynchronize(stream), "a stream"); }
