/* The functions of gpu.h where there is no CUDA: there are no GPUs, so nobody asks for anything of theirs. */
#include <stdio.h>
#include <stdlib.h>

#include "perf/gpu/gpu.h"

int gpu_count(void) { return 0; }
const char* gpu_lack(void) { return "this build has no CUDA: build it where nvcc is found (TUTTI_CUDA=ON says why it is not)"; }

static void refuse(void) {
  fprintf(stderr, "%s\n", gpu_lack());
  exit(1);
}

const char* gpu_name(void) { return "none"; }
void gpu_use(int device) { (void)device, refuse(); }
void* gpu_allocate(size_t bytes) { return (void)bytes, refuse(), NULL; }
void gpu_release(void* memory) { (void)memory, refuse(); }
gpu_stream gpu_make_stream(void) { return refuse(), NULL; }
void gpu_copy(void* to, const void* from, size_t bytes, gpu_stream stream) { (void)to, (void)from, (void)bytes, (void)stream, refuse(); }
void gpu_synchronize(gpu_stream stream) { (void)stream, refuse(); }
gpu_mark gpu_make_mark(void) { return refuse(), NULL; }
void gpu_set_mark(gpu_mark mark, gpu_stream stream) { (void)mark, (void)stream, refuse(); }
double gpu_between(gpu_mark from, gpu_mark to) { return (void)from, (void)to, refuse(), 0; }
void gpu_release_mark(gpu_mark mark) { (void)mark, refuse(); }
