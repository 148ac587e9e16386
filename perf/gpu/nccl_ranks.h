/* For programs against nccl.h alone: ranks as processes or as threads, which hold one id, and the check of a call. */
#ifndef TUTTI_PERF_NCCL_RANKS_H
#define TUTTI_PERF_NCCL_RANKS_H
#include <nccl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

enum { kMostRanks = 16 };

#define CHECK(call)                                                                                \
  do {                                                                                             \
    ncclResult_t result_ = (call);                                                                 \
    if (result_ != ncclSuccess) {                                                                  \
      fprintf(stderr, "%s: %s: %s\n", #call, ncclGetErrorString(result_), ncclGetLastError(NULL)); \
      exit(1);                                                                                     \
    }                                                                                              \
  } while (0)

/* One of `ranks`: what it is called with, and whether something went wrong. */
typedef struct Start {
  int rank, ranks;
  ncclUniqueId id;
  int (*run)(const struct Start* start);
  const void* shared;
} Start;

/* Ends with 1 if one of them did not end with 0. Rank 0 tells the others the id by a pipe each: nothing of NCCL is used before the
 * processes part. */
static int run_processes(Start start) {
  int pipes[kMostRanks][2];
  for (int r = 0; r < start.ranks; ++r)
    if (pipe(pipes[r]) != 0) return 1;
  for (start.rank = 0; start.rank < start.ranks; ++start.rank) {
    if (fork() != 0) continue;
    if (start.rank == 0) {
      CHECK(ncclGetUniqueId(&start.id));
      for (int other = 1; other < start.ranks; ++other)
        if (write(pipes[other][1], &start.id, sizeof start.id) != sizeof start.id) exit(1);
    } else if (read(pipes[start.rank][0], &start.id, sizeof start.id) != sizeof start.id) {
      exit(1);
    }
    exit(start.run(&start) != 0);
  }
  int failed = 0, status = 0;
  while (wait(&status) > 0) failed |= status != 0;
  return failed;
}

static void* run_thread(void* given) {
  const Start* const start = given;
  return start->run(start) ? given : NULL;
}

static int run_threads(Start start) {
  pthread_t threads[kMostRanks];
  Start starts[kMostRanks];
  CHECK(ncclGetUniqueId(&start.id));
  for (int r = 0; r < start.ranks; ++r) {
    starts[r] = start, starts[r].rank = r;
    if (pthread_create(&threads[r], NULL, run_thread, &starts[r]) != 0) return 1;
  }
  int failed = 0;
  for (int r = 0; r < start.ranks; ++r) {
    void* wrong = NULL;
    pthread_join(threads[r], &wrong);
    failed |= wrong != NULL;
  }
  return failed;
}
#endif
