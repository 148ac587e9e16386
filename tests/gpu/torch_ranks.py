#!/usr/bin/env python3
"""torch.distributed's backend "nccl" on two ranks that share a GPU, to be run with our libnccl.so.2 preloaded: collectives, sends and
receives on the current stream against what they must give. Ends with 4 where torch has no CUDA."""
import ctypes
import os
import sys

import torch
import torch.distributed as dist
import torch.multiprocessing as processes

RANKS = 2


def expect(what, got, wanted):
    if not torch.equal(got.cpu(), wanted):
        sys.exit(f"{what}: wanted {wanted.flatten()[:4]}.., got {got.cpu().flatten()[:4]}..")


def rank_main(rank, port):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    torch.cuda.set_device(0)
    dist.init_process_group("nccl", rank=rank, world_size=RANKS)
    for count in (1, 1000, 3_000_000):
        mine = [torch.arange(count, dtype=torch.float32) % 100 + r for r in range(RANKS)]
        x = mine[rank].cuda()
        dist.all_reduce(x)
        expect("all_reduce", x, sum(mine))
        parts = [torch.empty(count, device="cuda") for _ in range(RANKS)]
        dist.all_gather(parts, mine[rank].cuda())
        for r in range(RANKS):
            expect("all_gather", parts[r], mine[r])
        out = torch.stack([mine[rank] * (to + 1) for to in range(RANKS)]).cuda()
        got = torch.empty_like(out)
        dist.all_to_all_single(got, out)
        expect("all_to_all_single", got, torch.stack([mine[r] * (rank + 1) for r in range(RANKS)]))
        y = torch.empty(count, device="cuda")
        requests = dist.batch_isend_irecv([dist.P2POp(dist.isend, mine[rank].cuda(), 1 - rank), dist.P2POp(dist.irecv, y, 1 - rank)])
        for request in requests:
            request.wait()
        expect("batch_isend_irecv", y, mine[1 - rank])
        dist.broadcast(y, 0)
        expect("broadcast", y, mine[1])
    dist.barrier()
    torch.cuda.synchronize()
    dist.destroy_process_group()
    if rank == 0:
        print(f"torch {torch.__version__}: {RANKS} ranks on one GPU are right")


def library():
    """The file that ncclGetVersion comes from."""
    with open("/proc/self/maps") as maps:
        return sorted({line.split()[-1] for line in maps if "libnccl" in line})


if __name__ == "__main__":
    if not torch.cuda.is_available() or not dist.is_nccl_available():
        print("not run: this torch has no CUDA, or no NCCL")
        sys.exit(4)
    ctypes.CDLL("libnccl.so.2")
    print("libnccl of this process:", *library())
    import socket
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        free = probe.getsockname()[1]
    processes.spawn(rank_main, args=(free,), nprocs=RANKS)
