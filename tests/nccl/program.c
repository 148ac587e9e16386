/* A program written against nccl.h alone, in plain C: ranks on host memory run every operation with every type and compare what
 * comes back with a reference in double. Compiled against either header and linked to either library. With TUTTI_ON_GPU the
 * memory is a GPU's, of which each rank takes the next, and each rank has a stream: a twin's, or CUDA's.
 *
 *   program where                        prints the file that ncclAllReduce comes from
 *   program processes N | threads N      N ranks, each by ncclCommInitRank, as processes or threads
 *   program one-thread N                 N ranks of one thread: ncclCommInitAll, and groups
 *   program place                        what is said to GPU memory and streams, by the pretended driver
 *   program join RANK N ID WHAT          one rank beside others; WHAT: "die" (killed after an operation), "stay" (takes part in all that follows) */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <math.h>
#include <signal.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#include "perf/gpu/nccl_ranks.h"
#ifdef TUTTI_ON_GPU
#include "perf/gpu/gpu.h"
#else
typedef void* gpu_stream;
#endif

enum { kCount = 501 };

/* Types: how their bits make a number. */
typedef struct {
  ncclDataType_t type;
  const char* name;
  size_t size;
  int is_signed, exponent, mantissa; /* exponent 0: an integer */
} Type;

static const Type kTypes[] = {
    {ncclInt8, "int8", 1, 1, 0, 0},         {ncclUint8, "uint8", 1, 0, 0, 0},         {ncclInt32, "int32", 4, 1, 0, 0},
    {ncclUint32, "uint32", 4, 0, 0, 0},     {ncclInt64, "int64", 8, 1, 0, 0},         {ncclUint64, "uint64", 8, 0, 0, 0},
    {ncclFloat16, "float16", 2, 1, 5, 10},  {ncclBfloat16, "bfloat16", 2, 1, 8, 7},   {ncclFloat32, "float32", 4, 1, 8, 23},
    {ncclFloat64, "float64", 8, 1, 11, 52}, {ncclFloat8e4m3, "f8e4m3", 1, 1, 4, 3},   {ncclFloat8e5m2, "f8e5m2", 1, 1, 5, 2},
};
enum { kTypeCount = sizeof kTypes / sizeof kTypes[0] };

static double value_of(const Type* t, const void* at) {
  uint64_t bits = 0;
  memcpy(&bits, at, t->size);
  if (t->exponent == 0) {
    if (!t->is_signed) return (double)bits;
    const int unused = 64 - 8 * (int)t->size;
    return (double)((int64_t)(bits << unused) >> unused);
  }
  const int bias = (1 << (t->exponent - 1)) - 1;
  const int exponent = (int)(bits >> t->mantissa & ((1u << t->exponent) - 1));
  const double fraction = (double)(bits & ((UINT64_C(1) << t->mantissa) - 1));
  const double magnitude = exponent ? ldexp(fraction + ldexp(1, t->mantissa), exponent - bias - t->mantissa) : ldexp(fraction, 1 - bias - t->mantissa);
  return bits >> (t->exponent + t->mantissa) & 1 ? -magnitude : magnitude;
}

static uint64_t next_random(uint64_t* state) { /* xorshift64* */
  *state ^= *state >> 12;
  *state ^= *state << 25;
  *state ^= *state >> 27;
  return *state * UINT64_C(2685821657736338717);
}

/* Element `index` of what `rank` contributes. Integers from 1 to 3, signed ones also below 0: their products stay within 8 bits.
 * Floats with random mantissas between 1/2 and 2 in size. */
static void set_input(const Type* t, int rank, size_t index, void* at) {
  uint64_t state = (uint64_t)(rank + 1) * 1000003 + index * 7919 + (uint64_t)t->type * 104729 + 1;
  for (int i = 0; i < 3; ++i) next_random(&state);
  const uint64_t chance = next_random(&state);
  uint64_t bits;
  if (t->exponent == 0) {
    const int64_t small = 1 + (int64_t)(chance % 3);
    bits = (uint64_t)(t->is_signed && chance >> 40 & 1 ? -small : small);
  } else {
    const uint64_t bias = (UINT64_C(1) << (t->exponent - 1)) - 1;
    bits = (chance >> 63) << (t->exponent + t->mantissa) | (bias - (chance >> 62 & 1)) << t->mantissa | (chance & ((UINT64_C(1) << t->mantissa) - 1));
  }
  memcpy(at, &bits, t->size);
}

static double input(const Type* t, int rank, size_t index) {
  uint64_t bits = 0;
  set_input(t, rank, index, &bits);
  return value_of(t, &bits);
}

/* Reductions; the last is PreMulSum with the factor rank + 1. */
enum { kOpCount = 6 };
static const ncclRedOp_t kOps[kOpCount - 1] = {ncclSum, ncclProd, ncclMax, ncclMin, ncclAvg};

static void expect_reduced(const Type* t, int op, int ranks, size_t index, const void* got_bits, const char* what) {
  double exact = input(t, 0, index), size = 0;
  for (int r = 0; r < ranks; ++r) {
    const double x = input(t, r, index) * (op == 5 ? r + 1 : 1);
    size += fabs(x);
    if (r == 0) continue;
    exact = op == 1 ? exact * x : op == 2 ? fmax(exact, x) : op == 3 ? fmin(exact, x) : exact + x;
  }
  if (op == 4) exact = t->exponent ? exact / ranks : trunc(exact / ranks);
  const double got = value_of(t, got_bits);
  double bound = 0;
  if (t->exponent && op != 2 && op != 3) bound = (ranks + 2) * ldexp(1, -t->mantissa - 1) * (op == 1 ? fabs(exact) : size);
  if (fabs(got - exact) <= bound) return;
  fprintf(stderr, "%s %s op %d element %zu: wanted %.17g within %g, got %.17g\n", what, t->name, op, index, exact, bound, got);
  exit(1);
}

static void expect_copied(const Type* t, int from, size_t index, const void* got, const char* what) {
  uint64_t wanted = 0;
  set_input(t, from, index, &wanted);
  if (memcmp(&wanted, got, t->size) == 0) return;
  fprintf(stderr, "%s %s element %zu of rank %d: wanted %.17g, got %.17g\n", what, t->name, index, from, value_of(t, &wanted), value_of(t, got));
  exit(1);
}

/* What one rank has. */
typedef struct {
  int rank, ranks;
  ncclComm_t comm;
  char *in, *out;             /* of kCount elements for each rank */
  char *there_in, *there_out; /* where the calls find them */
  gpu_stream stream;
} Rank;
enum { kBytes = 8 * kCount * kMostRanks };

static void use_device_of(int rank) {
#ifdef TUTTI_ON_GPU
  if (gpu_count() == 0) fprintf(stderr, "%s\n", gpu_lack()), exit(1);
  gpu_use(rank % gpu_count());
#else
  (void)rank;
#endif
}

static void make_buffers(Rank* r) {
  use_device_of(r->rank);
  CHECK(ncclMemAlloc((void**)&r->there_in, kBytes));
  CHECK(ncclMemAlloc((void**)&r->there_out, kBytes));
#ifdef TUTTI_ON_GPU
  r->in = malloc(kBytes), r->out = malloc(kBytes);
  r->stream = gpu_make_stream();
#else
  r->in = r->there_in, r->out = r->there_out, r->stream = NULL;
#endif
}

static void upload(Rank* r, char* there, const char* here) {
#ifdef TUTTI_ON_GPU
  gpu_copy(there, here, kBytes, r->stream);
#else
  (void)r, (void)there, (void)here;
#endif
}

/* Behind all that was called. */
static void download(Rank* r) {
#ifdef TUTTI_ON_GPU
  gpu_copy(r->out, r->there_out, kBytes, r->stream);
  gpu_synchronize(r->stream);
#else
  (void)r;
#endif
}

static void free_rank(Rank* r) {
#ifdef TUTTI_ON_GPU
  free(r->in), free(r->out);
#endif
  CHECK(ncclMemFree(r->there_in));
  CHECK(ncclMemFree(r->there_out));
  CHECK(ncclCommFinalize(r->comm));
  CHECK(ncclCommDestroy(r->comm));
}

static void fill(const Type* t, Rank* r, size_t count) {
  for (size_t i = 0; i < count; ++i) set_input(t, r->rank, i, r->in + i * t->size);
  memset(r->out, 0x5a, kBytes);
  upload(r, r->there_in, r->in);
  upload(r, r->there_out, r->out);
}

/* A case is started on every rank of this thread within one group, or of a rank alone without one; then looked at. */
typedef struct {
  const Type* type;
  int what, op, root;
} Case;
enum { all_reduce, reduce, reduce_scatter, broadcast, bcast, all_gather, all_to_all, gather, scatter, ring, kWhats };
static const char* const kNames[kWhats] = {"AllReduce", "Reduce", "ReduceScatter", "Broadcast", "Bcast", "AllGather", "AlltoAll", "Gather", "Scatter", "Send/Recv"};

static size_t input_count(const Case* c, int ranks) {
  return c->what == reduce_scatter || c->what == all_to_all || c->what == scatter ? (size_t)kCount * (size_t)ranks : (size_t)kCount;
}

static void begin(const Case* c, Rank* r, ncclRedOp_t op) {
  const ncclDataType_t t = c->type->type;
  const int next = (r->rank + 1) % r->ranks, before = (r->rank + r->ranks - 1) % r->ranks;
  switch (c->what) {
    case all_reduce: CHECK(ncclAllReduce(r->there_in, r->there_out, kCount, t, op, r->comm, r->stream)); break;
    case reduce: CHECK(ncclReduce(r->there_in, r->rank == c->root ? r->there_out : NULL, kCount, t, op, c->root, r->comm, r->stream)); break;
    case reduce_scatter: CHECK(ncclReduceScatter(r->there_in, r->there_out, kCount, t, op, r->comm, r->stream)); break;
    case broadcast: CHECK(ncclBroadcast(r->there_in, r->there_out, kCount, t, c->root, r->comm, r->stream)); break;
    case bcast:
      if (r->rank == c->root) memcpy(r->out, r->in, kCount * c->type->size), upload(r, r->there_out, r->out);
      CHECK(ncclBcast(r->there_out, kCount, t, c->root, r->comm, r->stream));
      break;
    case all_gather: CHECK(ncclAllGather(r->there_in, r->there_out, kCount, t, r->comm, r->stream)); break;
    case all_to_all: CHECK(ncclAlltoAll(r->there_in, r->there_out, kCount, t, r->comm, r->stream)); break;
    case gather: CHECK(ncclGather(r->there_in, r->there_out, kCount, t, c->root, r->comm, r->stream)); break;
    case scatter: CHECK(ncclScatter(r->there_in, r->there_out, kCount, t, c->root, r->comm, r->stream)); break;
    default:
      CHECK(ncclGroupStart());
      CHECK(ncclSend(r->there_in, kCount, t, next, r->comm, r->stream));
      CHECK(ncclRecv(r->there_out, kCount, t, before, r->comm, r->stream));
      CHECK(ncclGroupEnd());
  }
}

static void look(const Case* c, const Rank* r) {
  const Type* t = c->type;
  const char* name = kNames[c->what];
  const int before = (r->rank + r->ranks - 1) % r->ranks;
  for (size_t i = 0; i < kCount; ++i) {
    const char* got = r->out + i * t->size;
    const size_t own_block = (size_t)r->rank * kCount + i;
    switch (c->what) {
      case all_reduce: expect_reduced(t, c->op, r->ranks, i, got, name); break;
      case reduce: if (r->rank == c->root) expect_reduced(t, c->op, r->ranks, i, got, name); break;
      case reduce_scatter: expect_reduced(t, c->op, r->ranks, own_block, got, name); break;
      case broadcast: case bcast: expect_copied(t, c->root, i, got, name); break;
      case scatter: expect_copied(t, c->root, own_block, got, name); break;
      case ring: expect_copied(t, before, i, got, name); break;
      default:
        if (c->what == gather && r->rank != c->root) break;
        for (int from = 0; from < r->ranks; ++from)
          expect_copied(t, from, c->what == all_to_all ? own_block : i, r->out + ((size_t)from * kCount + i) * t->size, name);
    }
  }
}

/* PreMulSum's factor of this rank, in the type. */
static ncclRedOp_t custom_op(const Type* t, const Rank* r) {
  uint64_t scalar = (uint64_t)(r->rank + 1);
  if (t->exponent) { /* rank + 1 = 2^e * (1 + f) */
    int e = 0;
    while ((2 << e) <= r->rank + 1) ++e;
    const uint64_t bias = (UINT64_C(1) << (t->exponent - 1)) - 1;
    scalar = ((bias + (uint64_t)e) << t->mantissa) | (uint64_t)ldexp(ldexp(r->rank + 1, -e) - 1, t->mantissa);
  }
  ncclRedOp_t op;
  CHECK(ncclRedOpCreatePreMulSum(&op, &scalar, t->type, ncclScalarHostImmediate, r->comm));
  return op;
}

/* The ranks of one thread; of a rank that has a thread or process of its own, that one. */
static void run_case(const Case* c, Rank* ranks, int count) {
  ncclRedOp_t ops[kMostRanks];
  for (int i = 0; i < count; ++i) {
    fill(c->type, &ranks[i], input_count(c, ranks[i].ranks));
    ops[i] = c->op < kOpCount - 1 ? kOps[c->op] : custom_op(c->type, &ranks[i]);
  }
  if (count > 1) CHECK(ncclGroupStart());
  for (int i = 0; i < count; ++i) begin(c, &ranks[i], ops[i]);
  if (count > 1) CHECK(ncclGroupEnd());
  for (int i = 0; i < count; ++i) {
    download(&ranks[i]);
    look(c, &ranks[i]);
    if (c->op == kOpCount - 1) CHECK(ncclRedOpDestroy(ops[i], ranks[i].comm));
  }
}

static void run_all(Rank* ranks, int count) {
  int cases = 0;
  for (int t = 0; t < kTypeCount; ++t)
    for (int what = 0; what < kWhats; ++what)
      for (int op = 0; op < (what <= reduce_scatter ? kOpCount : 1); ++op, ++cases) {
        const Case c = {&kTypes[t], what, op, (t + what) % ranks[0].ranks};
        run_case(&c, ranks, count);
      }
  for (int i = 0; i < count; ++i) {
    int own = -1, all = -1;
    CHECK(ncclCommUserRank(ranks[i].comm, &own));
    CHECK(ncclCommCount(ranks[i].comm, &all));
    if (own != ranks[i].rank || all != ranks[i].ranks) fprintf(stderr, "rank %d of %d?\n", own, all), exit(1);
    if (own == 0) printf("%d cases right on %d ranks\n", cases, all), fflush(stdout);
  }
}

static int run_rank(const Start* start) {
  Rank r = {.rank = start->rank, .ranks = start->ranks};
  make_buffers(&r); /* before others may be at work: on a GPU that could wait for them */
  CHECK(ncclCommInitRank(&r.comm, start->ranks, start->id, start->rank));
  run_all(&r, 1);
  free_rank(&r);
  return 0;
}

static int run_one_thread(int count) {
  ncclComm_t comms[kMostRanks];
  Rank ranks[kMostRanks];
#ifdef TUTTI_ON_GPU
  int devices[kMostRanks] = {0};
  if (gpu_count() == 0) return fprintf(stderr, "%s\n", gpu_lack()), 1;
  for (int r = 0; r < count; ++r) devices[r] = r % gpu_count();
  CHECK(ncclCommInitAll(comms, count, devices));
#else
  CHECK(ncclCommInitAll(comms, count, NULL));
#endif
  for (int r = 0; r < count; ++r) {
    ranks[r] = (Rank){.rank = r, .ranks = count, .comm = comms[r]};
    make_buffers(&ranks[r]);
  }
  run_all(ranks, count);
  for (int r = 0; r < count; ++r) free_rank(&ranks[r]);
  return 0;
}

static ncclUniqueId id_from(const char* hex) {
  ncclUniqueId id;
  for (size_t i = 0; i < sizeof id; ++i) {
    unsigned byte = 0;
    if (sscanf(hex + 2 * i, "%2x", &byte) != 1) exit(2);
    id.internal[i] = (char)byte;
  }
  return id;
}

static int join(int rank, int ranks, const char* id, const char* what) {
  ncclComm_t comm;
  CHECK(ncclCommInitRank(&comm, ranks, id_from(id), rank));
  float x = 1;
  CHECK(ncclAllReduce(&x, &x, 1, ncclFloat, ncclSum, comm, NULL));
  if (strcmp(what, "die") == 0) {
    usleep(200 * 1000);        /* the others end it, too: from a death on, none of them ends anything */
    raise(SIGKILL);
  }
  while (ncclAllReduce(&x, &x, 1, ncclFloat, ncclSum, comm, NULL) == ncclSuccess) continue;
  return 0;
}

static int place(void) {
  ncclComm_t comm;
  int device = -1;
  float x = 5, y = 0;
  void *const on_gpu = (void*)0x10000, *memory = NULL;
  ncclUniqueId id;
  CHECK(ncclGetUniqueId(&id));
  CHECK(ncclCommInitRank(&comm, 1, id, 0));
  CHECK(ncclCommCuDevice(comm, &device));
  CHECK(ncclAllReduce(&x, &y, 1, ncclFloat, ncclSum, comm, NULL));
  const int calls[] = {(int)ncclAllReduce(on_gpu, &y, 1, ncclFloat, ncclSum, comm, NULL), (int)ncclRecv(on_gpu, 1, ncclFloat, 0, comm, NULL),
                       (int)ncclAllReduce(&x, &y, 1, ncclFloat, ncclSum, comm, (cudaStream_t)&x), (int)ncclMemAlloc(&memory, 8)};
  printf("device %d, host %g, results %d %d %d %d\n", device, y, calls[0], calls[1], calls[2], calls[3]);
  return 0;
}

int main(int argc, char** argv) {
  const char* mode = argc > 1 ? argv[1] : "";
  const int count = argc > 2 ? atoi(argv[2]) : 0;
  if (strcmp(mode, "where") == 0) {
    Dl_info info;
    int version = 0;
    if (!dladdr((void*)dlsym(RTLD_DEFAULT, "ncclAllReduce"), &info) || ncclGetVersion(&version) != ncclSuccess) return 1;
    printf("%d %s\n", version, info.dli_fname);
    return 0;
  }
  if (strcmp(mode, "place") == 0) return place();
  if (strcmp(mode, "join") == 0 && argc == 6) return join(count, atoi(argv[3]), argv[4], argv[5]);
  if (count < 1 || count > kMostRanks) return fprintf(stderr, "usage: see the head of the source\n"), 2;
  const Start start = {.ranks = count, .run = run_rank};
  if (strcmp(mode, "processes") == 0) return run_processes(start);
  if (strcmp(mode, "threads") == 0) return run_threads(start);
  if (strcmp(mode, "one-thread") == 0) return run_one_thread(count);
  return 2;
}
