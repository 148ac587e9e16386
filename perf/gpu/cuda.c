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

static cudaError_t count_devices(int* count) {
  *count = 0;
  const cudaError_t error = cudaGetDeviceCount(count);
  return error == cudaSuccess && *count == 0 ? cudaErrorNoDevice : error;
}

int gpu_count(void) {
  int count = 0;
  return count_devices(&count) == cudaSuccess ? count : 0;
}

const char* gpu_lack(void) {
  static char text[256];
  int count = 0;
  const cudaError_t error = count_devices(&count);
  snprintf(text, sizeof text, "no GPU can be used here: CUDA says %s (%s); is there a driver, and does nvidia-smi list the GPU?",
           cudaGetErrorString(error), cudaGetErrorName(error));
  return text;
}

const char* gpu_name(void) {
  static _Thread_local struct cudaDeviceProp properties;
  int device = 0;
  must(cudaGetDevice(&device), "the current GPU");
  must(cudaGetDeviceProperties(&properties, device), "a GPU's properties");
  return properties.name;
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

gpu_mark gpu_make_mark(void) {
  cudaEvent_t event = NULL;
  must(cudaEventCreate(&event), "an event");
  return event;
}

void gpu_set_mark(gpu_mark mark, gpu_stream stream) { must(cudaEventRecord(mark, stream), "an event on a stream"); }

double gpu_between(gpu_mark from, gpu_mark to) {
  float milliseconds = 0;
  must(cudaEventElapsedTime(&milliseconds, from, to), "the time between two events");
  return milliseconds * 1e3;
}

void gpu_release_mark(gpu_mark mark) { must(cudaEventDestroy(mark), "an event to be destroyed"); }
