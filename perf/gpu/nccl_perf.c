/* How fast a library with NCCL's API is on memory of GPUs: written against nccl.h alone, so ours and NVIDIA's can be measured. Ranks are
 * processes, or threads, and share the GPUs by turns. Each size is checked once against a reference in double, then timed: calls one
 * behind another on a stream, until the slowest rank's has passed the last.
 *
 *   nccl_perf [-o OPERATION] [-g RANKS] [-b BYTES] [-e BYTES] [-f FACTOR] [-n CALLS] [-w CALLS] [-t]
 *
 * Sizes count as in nccl-tests: the larger of the two buffers. -t: threads. Ends with 1 if anything is wrong. */
#define _GNU_SOURCE
#include <math.h>
#include <string.h>
#include <time.h>

#include "perf/gpu/gpu.h"
#include "perf/gpu/nccl_ranks.h"

typedef enum { all_reduce, all_gather, reduce_scatter, broadcast, all_to_all, send_recv, kOperations } Operation;
static const char* const kNames[kOperations] = {"all_reduce", "all_gather", "reduce_scatter", "broadcast", "alltoall", "sendrecv"};

typedef struct {
  Operation operation;
  int ranks, factor, calls, warm_up, threads;
  size_t least, most;
} Options;

typedef struct {
  const Options* options;
  int rank;
  ncclComm_t comm;
  gpu_stream stream;
  float *here_in, *here_out, *in, *out;
  double* seconds; /* on the GPU */
} Rank;

/* Between 1 and 2, with random mantissas: of element `index` of a rank's input. */
static float input(int rank, size_t index) {
  unsigned long long x = (unsigned long long)(rank + 1) * 0x9e3779b97f4a7c15ull + index * 0xbf58476d1ce4e5b9ull;
  x = (x ^ x >> 31) * 0x94d049bb133111ebull;
  return 1 + (float)(x >> 41) / (float)(1 << 23);
}

/* Elements of the operation: of the count that it is called with, and of both buffers. */
typedef struct {
  size_t count, in, out;
} Shape;

static Shape shape_of(const Options* o, size_t bytes) {
  const size_t ranks = (size_t)o->ranks, elements = bytes / sizeof(float);
  const int blocks = o->operation == all_gather || o->operation == reduce_scatter || o->operation == all_to_all;
  const size_t count = blocks ? elements / ranks : elements;
  const Shape shape = {count, o->operation == reduce_scatter || o->operation == all_to_all ? count * ranks : count,
                       o->operation == all_gather || o->operation == all_to_all ? count * ranks : count};
  return shape;
}

static void call(const Rank* r, Shape s) {
  const int ranks = r->options->ranks, next = (r->rank + 1) % ranks, before = (r->rank + ranks - 1) % ranks;
  switch (r->options->operation) {
    case all_reduce: CHECK(ncclAllReduce(r->in, r->out, s.count, ncclFloat, ncclSum, r->comm, r->stream)); break;
    case all_gather: CHECK(ncclAllGather(r->in, r->out, s.count, ncclFloat, r->comm, r->stream)); break;
    case reduce_scatter: CHECK(ncclReduceScatter(r->in, r->out, s.count, ncclFloat, ncclSum, r->comm, r->stream)); break;
    case broadcast: CHECK(ncclBroadcast(r->in, r->out, s.count, ncclFloat, 0, r->comm, r->stream)); break;
    case all_to_all:
      CHECK(ncclGroupStart());
      for (int peer = 0; peer < ranks; ++peer) {
        CHECK(ncclSend(r->in + (size_t)peer * s.count, s.count, ncclFloat, peer, r->comm, r->stream));
        CHECK(ncclRecv(r->out + (size_t)peer * s.count, s.count, ncclFloat, peer, r->comm, r->stream));
      }
      CHECK(ncclGroupEnd());
      break;
    default:
      CHECK(ncclGroupStart());
      CHECK(ncclSend(r->in, s.count, ncclFloat, next, r->comm, r->stream));
      CHECK(ncclRecv(r->out, s.count, ncclFloat, before, r->comm, r->stream));
      CHECK(ncclGroupEnd());
  }
}

static double wanted(const Rank* r, Shape s, size_t index) {
  const int ranks = r->options->ranks;
  const size_t own = (size_t)r->rank * s.count;
  double sum = 0;
  switch (r->options->operation) {
    case all_gather: return input((int)(index / s.count), index % s.count);
    case broadcast: return input(0, index);
    case all_to_all: return input((int)(index / s.count), own + index % s.count);
    case send_recv: return input((r->rank + ranks - 1) % ranks, index);
    default: break;
  }
  for (int from = 0; from < ranks; ++from) sum += input(from, r->options->operation == reduce_scatter ? own + index : index);
  return sum;
}

static size_t count_wrong(Rank* r, Shape s) {
  for (size_t i = 0; i < s.in; ++i) r->here_in[i] = input(r->rank, i);
  memset(r->here_out, 0xff, s.out * sizeof(float));
  gpu_copy(r->in, r->here_in, s.in * sizeof(float), r->stream);
  gpu_copy(r->out, r->here_out, s.out * sizeof(float), r->stream);
  call(r, s);
  gpu_copy(r->here_out, r->out, s.out * sizeof(float), r->stream);
  gpu_synchronize(r->stream);
  size_t wrong = 0;
  for (size_t i = 0; i < s.out; ++i) {
    const double exact = wanted(r, s, i);
    wrong += !(fabs(r->here_out[i] - exact) <= exact * r->options->ranks * 6e-8);
  }
  return wrong;
}

/* The largest of all ranks' values. */
static double largest(Rank* r, double value) {
  gpu_copy(r->seconds, &value, sizeof value, r->stream);
  CHECK(ncclAllReduce(r->seconds, r->seconds, 1, ncclDouble, ncclMax, r->comm, r->stream));
  gpu_copy(&value, r->seconds, sizeof value, r->stream);
  gpu_synchronize(r->stream);
  return value;
}

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* As nccl-tests has it. */
static double bus_factor(const Options* o) {
  const double n = o->ranks;
  if (o->operation == all_reduce) return 2 * (n - 1) / n;
  return o->operation == broadcast || o->operation == send_recv ? 1 : (n - 1) / n;
}

static int measure(Rank* r) {
  const Options* o = r->options;
  int wrong_sizes = 0;
  for (size_t bytes = o->least; bytes <= o->most; bytes *= (size_t)o->factor) {
    const Shape s = shape_of(o, bytes);
    const double wrong = largest(r, (double)count_wrong(r, s));
    for (int i = 0; i < o->warm_up; ++i) call(r, s);
    largest(r, 0); /* all begin together */
    const double begin = now();
    for (int i = 0; i < o->calls; ++i) call(r, s);
    gpu_synchronize(r->stream);
    const double seconds = largest(r, (now() - begin) / o->calls), moved = (double)((s.in > s.out ? s.in : s.out) * sizeof(float));
    if (r->rank == 0)
      printf("%12.0f %12zu %10.1f %8.2f %8.2f %8.0f\n", moved, s.count, seconds * 1e6, moved / seconds / 1e9,
             moved / seconds / 1e9 * bus_factor(o), wrong), fflush(stdout);
    wrong_sizes += wrong > 0;
  }
  return wrong_sizes;
}

static int run_rank(const Start* start) {
  Rank rank = {.options = start->shared, .rank = start->rank}, *const r = &rank;
  if (gpu_count() == 0) { /* CUDA bears no question before the processes part */
    if (r->rank == 0) fprintf(stderr, "nccl_perf: %s\n", gpu_lack());
    return 1;
  }
  gpu_use(r->rank % gpu_count());
  r->stream = gpu_make_stream();
  const size_t bytes = r->options->most + 256;
  r->here_in = malloc(bytes), r->here_out = malloc(bytes);
  r->in = gpu_allocate(bytes), r->out = gpu_allocate(bytes), r->seconds = gpu_allocate(sizeof(double));
  CHECK(ncclCommInitRank(&r->comm, start->ranks, start->id, r->rank)); /* nothing is allocated once others may be at work */
  if (r->rank == 0)
    printf("# %s, float, %d ranks (%s) on %d GPUs (%s), %d calls after %d\n#%11s %12s %10s %8s %8s %8s\n", kNames[r->options->operation],
           r->options->ranks, r->options->threads ? "threads" : "processes", gpu_count(), gpu_name(), r->options->calls, r->options->warm_up,
           "bytes", "count", "us", "algbw", "busbw", "wrong");
  const int wrong = measure(r);
  gpu_release(r->in), gpu_release(r->out), gpu_release(r->seconds);
  free(r->here_in), free(r->here_out);
  CHECK(ncclCommDestroy(r->comm));
  return wrong;
}

static size_t bytes_from(const char* text) {
  char* end = NULL;
  const unsigned long long value = strtoull(text, &end, 10);
  const char* const at = *end ? strchr("KMG", *end) : NULL;
  if (end == text || (*end && (!at || end[1]))) return fprintf(stderr, "'%s' is not a size such as 8, 64K, 128M or 2G\n", text), exit(2), 0;
  return at ? (size_t)value << 10 * (at - "KMG" + 1) : (size_t)value;
}

static int operation_from(const char* name) {
  for (int i = 0; i < kOperations; ++i)
    if (strcmp(name, kNames[i]) == 0) return i;
  return fprintf(stderr, "'%s' is not one of all_reduce, all_gather, reduce_scatter, broadcast, alltoall, sendrecv\n", name), exit(2), 0;
}

int main(int argc, char** argv) {
  Options o = {all_reduce, 2, 4, 20, 5, 0, 8, 128 << 20};
  for (int option; (option = getopt(argc, argv, "o:g:b:e:f:n:w:t")) != -1;) switch (option) {
      case 'o': o.operation = (Operation)operation_from(optarg); break;
      case 'g': o.ranks = atoi(optarg); break;
      case 'b': o.least = bytes_from(optarg); break;
      case 'e': o.most = bytes_from(optarg); break;
      case 'f': o.factor = atoi(optarg); break;
      case 'n': o.calls = atoi(optarg); break;
      case 'w': o.warm_up = atoi(optarg); break;
      case 't': o.threads = 1; break;
      default: return 2;
    }
  if (o.ranks < 1 || o.ranks > kMostRanks || o.factor < 2 || o.calls < 1 || o.warm_up < 0 || o.least < 4 || o.least > o.most)
    return fprintf(stderr, "nccl_perf: wanted 1 to %d ranks, a factor from 2, calls from 1, sizes from 4 bytes\n", kMostRanks), 2;
  const Start start = {.ranks = o.ranks, .run = run_rank, .shared = &o};
  return o.threads ? run_threads(start) : run_processes(start);
}
