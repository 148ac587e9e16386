/* What a program needs of CUDA's runtime to have memory and streams of a GPU, in a few functions: behind them are twins of GPUs on the
 * host (tests/nccl/twin, in a library together with our libnccl), or CUDA (cuda.c). What fails ends the program. */
#ifndef TUTTI_PERF_GPU_H
#define TUTTI_PERF_GPU_H
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct CUstream_st* gpu_stream;

int gpu_count(void); /* 0: gpu_lack() says why */
const char* gpu_lack(void);
const char* gpu_name(void); /* of this thread's */
void gpu_use(int device); /* of this thread; the first at the start */
void* gpu_allocate(size_t bytes);
void gpu_release(void* memory);
gpu_stream gpu_make_stream(void);
/* On the stream; the host's memory must stay as it is until then. */
void gpu_copy(void* to, const void* from, size_t bytes, gpu_stream stream);
void gpu_synchronize(gpu_stream stream);
/* When a stream comes to a mark; the time between two that it has passed, in microseconds. */
typedef struct CUevent_st* gpu_mark;
gpu_mark gpu_make_mark(void);
void gpu_set_mark(gpu_mark mark, gpu_stream stream);
double gpu_between(gpu_mark from, gpu_mark to);
void gpu_release_mark(gpu_mark mark);

/* Twins only. */
void gpu_hold(gpu_stream stream, int held); /* nothing on it runs while it is held */
void gpu_pretend_capture(gpu_stream stream, int capturing);
size_t gpu_allocations(void); /* of any kind, by all of them, so far */
size_t gpu_kernels(void);     /* of collectives, in each other's memory; by all of them, so far */

#ifdef __cplusplus
}
#endif
#endif
