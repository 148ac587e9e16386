/* What a program needs of CUDA's runtime to have memory and streams of a GPU, in a few functions: behind them are twins of GPUs on the
 * host (tests/nccl/twin, in a library together with our libnccl), or CUDA (cuda.c). What fails ends the program. */
#ifndef TUTTI_PERF_GPU_H
#define TUTTI_PERF_GPU_H
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct CUstream_st* gpu_stream;

int gpu_count(void);
void gpu_use(int device); /* of this thread; the first at the start */
void* gpu_allocate(size_t bytes);
void gpu_release(void* memory);
gpu_stream gpu_make_stream(void);
/* On the stream; the host's memory must stay as it is until then. */
void gpu_copy(void* to, const void* from, size_t bytes, gpu_stream stream);
void gpu_synchronize(gpu_stream stream);

/* Twins only. */
void gpu_hold(gpu_stream stream, int held); /* nothing on it runs while it is held */
void gpu_pretend_capture(gpu_stream stream, int capturing);
size_t gpu_allocations(void); /* of any kind, by all of them, so far */

#ifdef __cplusplus
}
#endif
#endif
