"""tutti and Gloo in turn under one torch.distributed, with the loop of contender.h. Arguments: COLLECTIVE BYTES,... SECONDS ROUNDS.

Rank 0 prints for each round of each size: backend, bytes, microseconds of a call. The calls are blocking and in place. Seconds: of a backend at
one size, about. Exit status 1: a result was wrong.
"""
import sys
import time

import torch
import torch.distributed as dist

import torch_tutti  # noqa: F401

WARM_UP = 3


def calls_of(size, ranks, seconds):
    """The same for both backends and on all ranks: from what a slow one may take."""
    return min(2000, max(3, int(seconds / (1e-4 * ranks + size * ranks / 1e9))))


def microseconds(call, group, calls):
    dist.barrier(group)
    start = time.perf_counter()
    for _ in range(calls):
        call(group)
    dist.barrier(group)
    return (time.perf_counter() - start) / calls * 1e6


def main(collective, sizes, seconds, rounds):
    dist.init_process_group("gloo")
    groups = {"tutti": dist.new_group(backend="tutti"), "gloo": dist.group.WORLD}
    rank, ranks = dist.get_rank(), dist.get_world_size()
    for size in map(int, sizes.split(",")):
        count = max(1, size // 4)
        numbers = torch.arange(count, dtype=torch.float32) % 64
        x = numbers.clone()
        call = {"all_reduce": lambda group: dist.all_reduce(x, group=group), "broadcast": lambda group: dist.broadcast(x, 0, group=group)}[collective]
        wanted = numbers * ranks + ranks * (ranks - 1) // 2 if collective == "all_reduce" else numbers
        for backend, group in groups.items():
            x.copy_(numbers + rank)
            call(group)
            if not torch.equal(x, wanted):
                sys.exit(f"{backend}: {collective} of {size} bytes: wrong values on rank {rank}")
            x.zero_()      # in place again and again: nothing grows
            microseconds(call, group, WARM_UP)
        for round in range(int(rounds)):
            for backend in sorted(groups, reverse=round % 2):
                taken = microseconds(call, groups[backend], calls_of(size, ranks, float(seconds) / int(rounds)))
                if rank == 0:
                    print(f"{backend} {size} {taken:.4f}", flush=True)
    dist.destroy_process_group()


main(*sys.argv[1:])
