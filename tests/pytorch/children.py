"""Ranks that have children: a data loader's workers, children by fork() that go on or exit, subprocesses. They disturb no rank, and a rank that is
killed is named although they live on.

Starts three ranks itself: a launcher would end the others when one is killed.
"""
import datetime
import os
import signal
import subprocess
import sys

import ranks

KILLED, SIZE = 1, 3

ranks.start_all(__file__, SIZE, KILLED)

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler

import torch_tutti

dist.init_process_group("tutti", timeout=datetime.timedelta(seconds=100))
RANK = dist.get_rank()


class Numbers(Dataset):
    def __len__(self):
        return 21 * SIZE

    def __getitem__(self, i):
        return torch.arange(1000.0) * (i + 1)


def loader(**options):
    return DataLoader(Numbers(), batch_size=7, sampler=DistributedSampler(Numbers()), num_workers=2, multiprocessing_context="fork", **options)


def check():
    t = torch.full((5000,), RANK + 1.0)
    dist.all_reduce(t)
    assert bool((t == SIZE * (SIZE + 1) / 2).all()), t


def a_data_loader():
    """Its workers come and go while ranks exchange what they load, in memory that ranks read in place."""
    total = torch_tutti.zeros(1000)
    for _ in range(2):
        for batch in loader():
            part = torch_tutti.zeros(1000)
            part.copy_(batch.sum(0))
            dist.all_reduce(part)
            total += part
    items = 21 * SIZE
    assert torch.equal(total, torch.arange(1000.0) * (2 * items * (items + 1) / 2)), total


def refused(call):
    error = ranks.failure_of(call, "a child on its parent's group")
    assert error.code == "invalid_state" and "by fork()" in str(error), error


def a_child_that_exits():
    """With all that an interpreter does at its end; what it calls on the parent's groups and Works is refused, and nothing hangs."""
    place = torch.zeros(5)
    pending = dist.irecv(place, src=(RANK + 1) % SIZE)
    kept = torch_tutti.zeros(100)
    child = os.fork()
    if child == 0:
        refused(lambda: dist.all_reduce(torch.ones(5)))
        refused(lambda: dist.barrier())
        refused(lambda: pending.wait())
        refused(lambda: dist.broadcast_object_list([1], src=0))
        kept += 1
        if RANK == 0:
            os._exit(0)      # PyTorch's store, whose host this is, would wait for a thread that a child has not
        del kept, pending
        dist.destroy_process_group()
        sys.exit(0)
    assert os.waitpid(child, 0)[1] == 0
    check()
    dist.send(torch.full((5,), RANK + 10.0), dst=(RANK - 1) % SIZE)
    pending.wait()
    assert place.tolist() == [(RANK + 1) % SIZE + 10.0] * 5, place
    dist.all_reduce(kept)      # the child has written where ranks read in place: that is shared, and it has freed nothing
    assert bool((kept == SIZE).all()), kept


def a_killed_rank():
    """Last. Its workers, a child without exec and a program that it has started outlive it."""
    store = dist.distributed_c10d._get_default_store()
    check()
    if RANK == KILLED:
        at_work = iter(loader(persistent_workers=True))
        next(at_work)
        child = os.fork()
        if child == 0:
            while True:
                signal.pause()
        program = subprocess.Popen(["sleep", "300"])
        store.set("children", f"{child} {program.pid}")
    check()
    if RANK == KILLED:
        os.kill(os.getpid(), signal.SIGKILL)
    children = [int(pid) for pid in store.get("children").split()]
    try:
        for _ in range(10):
            check()
    except torch_tutti.Error as error:
        # A limit's end would be a timeout.
        assert error.code == "peer_lost" and error.culprit == KILLED, error
        print(f"rank {RANK}: {error}", flush=True)
    else:
        raise AssertionError("nobody noticed")
    for pid in children:
        os.kill(pid, 0)      # raises where it is not there
    store.set(f"seen by {RANK}", "yes")
    if RANK == 0:      # the host of the store
        store.wait([f"seen by {r}" for r in range(SIZE) if r != KILLED])
        for pid in children:
            os.kill(pid, signal.SIGKILL)


for test in (a_data_loader, a_child_that_exits, a_killed_rank):
    test()
    if RANK == 0:
        print(test.__name__, flush=True)
os._exit(0)      # without goodbye: the store's host may be gone
