"""How ranks find each other: tutti:// by a launcher's names alone, subgroups by its store, and who is missing when somebody does not come.

Starts two ranks itself.
"""
import datetime
import os
import tempfile

import ranks

if not ranks.is_rank():
    addresses = [f"127.0.0.1:{port}" for port in ranks.free_ports(2)]
    with tempfile.TemporaryDirectory() as folder:
        ranks.start(__file__, [{"TUTTI_RANK": str(r), "TUTTI_RANK_COUNT": "2", "TUTTI_ADDRESS": addresses[0], "OTHER_MEETINGS": f"tcp://{addresses[1]} file://{folder}/met"}
                               for r in (0, 1)], [0, 0])

import torch
import torch.distributed as dist

import torch_tutti

dist.init_process_group("tutti", init_method="tutti://", timeout=datetime.timedelta(seconds=90))
RANK = dist.get_rank()
t = torch.tensor([RANK + 1.0])
dist.all_reduce(t)
assert t.item() == 3 and dist.get_world_size() == 2, t

again = dist.new_group(backend="tutti")
dist.all_reduce(t, group=again)
assert t.item() == 6, t
assert torch_tutti.explain(1 << 20).endswith("shm"), torch_tutti.explain(1 << 20)

if RANK == 0:
    error = ranks.failure_of(lambda: dist.new_group(backend="tutti", timeout=datetime.timedelta(seconds=1)))
    assert error.code == "timeout" and "ranks that have not come: 1" in str(error), error
dist.barrier()
dist.destroy_process_group()

# Again in the same processes, by torch's own ways.
for method in os.environ["OTHER_MEETINGS"].split():
    dist.init_process_group("tutti", init_method=method, rank=RANK, world_size=2)
    dist.all_reduce(t)
    dist.destroy_process_group()
assert t.item() == 24, t
print(f"rank {RANK}: met", flush=True)
