"""What goes wrong, as Python sees it: late, absent, aborting, disagreeing and killed ranks. Each case has a group of its own.

Starts three ranks itself: a launcher would end the others when one is killed.
"""
import datetime
import os
import signal
import threading
import time

import ranks
from ranks import failure_of

KILLED, SIZE = 1, 3

ranks.start_all(__file__, SIZE, KILLED)

import torch
import torch.distributed as dist

import torch_tutti

dist.init_process_group("tutti", timeout=datetime.timedelta(seconds=120))
RANK = dist.get_rank()


def group(seconds):
    made = dist.new_group(backend="tutti", timeout=datetime.timedelta(seconds=seconds))
    dist.barrier(group=made)
    dist.barrier()      # nobody is in the other one any more
    return made


def an_absent_rank():
    """The group's timeout counts for ranks that are alive and do not call."""
    short = group(8)
    if RANK != 2:
        error = failure_of(lambda: dist.all_reduce(torch.ones(5), group=short))
        assert error.code == "timeout" and error.culprit == 2 and "has not made the call" in str(error), error
        again = failure_of(lambda: dist.barrier(group=short))
        assert again.culprit == 2, again
    dist.barrier()      # rank 2 stays until the others have had their timeout


def a_wait_with_a_limit():
    """It ends the wait, not the operation."""
    patient = group(120)
    t = torch.ones(5)
    if RANK != 2:
        work = dist.all_reduce(t, group=patient, async_op=True)
        error = failure_of(lambda: work.wait(datetime.timedelta(milliseconds=50)))
        assert error.code == "timeout" and "goes on" in str(error), error
    dist.barrier()
    if RANK == 2:
        dist.all_reduce(t, group=patient)
    else:
        work.wait()
    assert t.tolist() == [float(SIZE)] * 5, t


def an_abort():
    """From another thread, of a rank that waits itself."""
    aborted = group(120)
    if RANK == 0:
        threading.Timer(0.3, lambda: torch_tutti.abort("enough of this", aborted)).start()
    if RANK != 1:
        error = failure_of(lambda: dist.all_reduce(torch.ones(5), group=aborted))
        assert error.code == "aborted" and error.culprit == 0 and "enough of this" in str(error), error
    dist.barrier()


def a_disagreement():
    """Both calls are named."""
    torn = group(120)
    error = failure_of(lambda: dist.all_reduce(torch.ones(5), group=torn) if RANK != 1 else dist.broadcast(torch.ones(7), 0, group=torn))
    assert error.code == "mismatch" and "all_reduce f32[5] sum" in str(error) and "broadcast f32[7]" in str(error), error
    dist.barrier()


def a_future_fails():
    """Whoever waits by a future gets the same text."""
    aborted = group(120)
    if RANK != 1:
        future = dist.all_reduce(torch.ones(5), group=aborted, async_op=True).get_future()
        if RANK == 0:
            torch_tutti.abort("no more", aborted)
        try:
            future.wait()
        except RuntimeError as error:
            assert "no more" in str(error), error
        else:
            raise AssertionError("the future did not fail")
    dist.barrier()


def a_killed_rank():
    """Last: the survivors hear of it while they wait, and in every later call."""
    whole = torch.ones(1 << 20)
    dist.all_reduce(whole)
    if RANK == KILLED:
        os.kill(os.getpid(), signal.SIGKILL)
    start = time.monotonic()
    error = failure_of(lambda: [dist.all_reduce(whole) for _ in range(10)])
    assert error.code == "peer_lost" and error.culprit == KILLED and "its process ended" in str(error), error
    assert time.monotonic() - start < 60, f"heard of it after {time.monotonic() - start:.0f} s"       # 120 s is the group's own limit
    print(f"rank {RANK}, after {time.monotonic() - start:.2f} s: {error}", flush=True)


for test in (an_absent_rank, a_wait_with_a_limit, an_abort, a_disagreement, a_future_fails, a_killed_rank):
    test()
    if RANK == 0:
        print(test.__name__, flush=True)
os._exit(0)      # without goodbye: the store's host may be gone
