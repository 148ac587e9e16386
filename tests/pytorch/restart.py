"""Under torchrun with --max_restarts 1: a rank is killed, all are started again, meet again and come to an end."""
import os
import signal

import torch
import torch.distributed as dist

import torch_tutti  # noqa: F401

dist.init_process_group("tutti")
RANK, SIZE = dist.get_rank(), dist.get_world_size()
restarts = int(os.environ["TORCHELASTIC_RESTART_COUNT"])
for step in range(10):
    t = torch.full((1000,), RANK + 1.0)
    dist.all_reduce(t)      # of a killed rank's survivors: raises, and ends the process
    assert bool((t == SIZE * (SIZE + 1) / 2).all()), t
    if step == 5 and restarts == 0 and RANK == 1:
        os.kill(os.getpid(), signal.SIGKILL)
assert restarts == 1, "nobody died"
print(f"rank {RANK}: came to the end", flush=True)
dist.destroy_process_group()
