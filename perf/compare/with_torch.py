"""tutti and Gloo in turn under one torch.distributed, with the loop of contender.h. Arguments: COLLECTIVE BYTES,... SECONDS ROUNDS.

"allocated" is tutti on a tensor of torch_tutti.zeros. Rank 0 prints for each round of each size: backend, bytes, microseconds of a call. The calls are blocking and in place. Seconds: of a backend at
one size, about. Exit status 1: a result was wrong.
"""
import sys
import time

import torch
import torch.distributed as dist

import torch_tutti

WARM_UP = 3


def calls_of(size, ranks, seconds):
    """The same for both backends and on all ranks: from what a slow one may take."""
    return min(2000, max(3, int(seconds / (1e-4 * ranks + size * ranks / 1e9))))


def microseconds(call, group, calls):
    dist.barrier(group)
    start = time.perf_counter()
    for _ in range(calls):
        call()
    dist.barrier(group)
    return (time.perf_counter() - start) / calls * 1e6


def main(collective, sizes, seconds, rounds):
    dist.init_process_group("gloo")
    tutti, gloo = dist.new_group(backend="tutti"), dist.group.WORLD
    rank, ranks = dist.get_rank(), dist.get_world_size()
    call = {"all_reduce": dist.all_reduce, "broadcast": lambda x, group: dist.broadcast(x, 0, group=group)}[collective]
    for size in map(int, sizes.split(",")):
        count = max(1, size // 4)
        numbers = torch.arange(count, dtype=torch.float32) % 64
        wanted = numbers * ranks + ranks * (ranks - 1) // 2 if collective == "all_reduce" else numbers
        plain = numbers.clone()
        contenders = {"tutti": (plain, tutti), "allocated": (torch_tutti.zeros(count), tutti), "gloo": (plain, gloo)}
        for name, (x, group) in contenders.items():
            x.copy_(numbers + rank)
            call(x, group=group)
            if not torch.equal(x, wanted):
                sys.exit(f"{name}: {collective} of {size} bytes: wrong values on rank {rank}")
            x.zero_()      # in place again and again: nothing grows
            microseconds(lambda: call(x, group=group), group, WARM_UP)
        for round in range(int(rounds)):
            for name in sorted(contenders, reverse=round % 2):
                x, group = contenders[name]
                taken = microseconds(lambda: call(x, group=group), group, calls_of(size, ranks, float(seconds) / int(rounds)))
                if rank == 0:
                    print(f"{name} {size} {taken:.4f}", flush=True)
    dist.destroy_process_group()


main(*sys.argv[1:])
