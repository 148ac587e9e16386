"""DistributedDataParallel on tutti: the same losses as on Gloo, those of hooks that round near them; gradients that skip exchange and unused ones, ranks
with fewer batches than others, optimizer states in parts; fully sharded parameters (FSDP) where this PyTorch has them for tensors of CPUs.

Started as the ranks of one job.
"""
import contextlib

import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel

import torch_tutti

dist.init_process_group("tutti")
RANK, SIZE = dist.get_rank(), dist.get_world_size()
GROUPS = {"tutti": dist.group.WORLD, "gloo": dist.new_group(backend="gloo")}
STEPS = 12


class Branches(torch.nn.Module):
    """A branch that some steps do not use, so that DDP has to look for what has no gradient."""

    def __init__(self):
        super().__init__()
        self.body = torch.nn.Sequential(torch.nn.Linear(20, 64), torch.nn.Tanh(), torch.nn.BatchNorm1d(64), torch.nn.Linear(64, 64))
        self.heads = torch.nn.ModuleList([torch.nn.Linear(64, 5), torch.nn.Linear(64, 5)])

    def forward(self, x, head):
        return self.heads[head](torch.tanh(self.body(x)))


def train(group, hook=None, bucket_cap_mb=0.01, **options):
    """Losses of all steps, averaged over the ranks by Gloo."""
    torch.manual_seed(1)
    model = DistributedDataParallel(Branches(), process_group=group, bucket_cap_mb=bucket_cap_mb, find_unused_parameters=True, **options)
    if hook:
        model.register_comm_hook(group, hook)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    data = torch.Generator().manual_seed(100 + RANK)
    teacher = torch.randn(20, 5, generator=torch.Generator().manual_seed(7))
    losses = []
    for step in range(STEPS):
        x = torch.randn(16, 20, generator=data)
        loss = torch.nn.functional.mse_loss(model(x, step % 2), x @ teacher)
        if step % 3 == 2:
            with model.no_sync():      # accumulates, sends nothing
                (loss / 2).backward()
            loss = torch.nn.functional.mse_loss(model(x, step % 2), x @ teacher)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        mean = loss.detach().clone()
        dist.all_reduce(mean, group=GROUPS["gloo"])
        losses.append(mean.item() / SIZE)
    parameters = torch.cat([p.detach().flatten() for p in model.parameters()])
    everyone = [torch.empty_like(parameters) for _ in range(SIZE)]
    dist.all_gather(everyone, parameters, group=GROUPS["gloo"])
    assert all(torch.equal(parameters, other) for other in everyone), "the ranks' parameters differ"
    return torch.tensor(losses)


wanted = train(GROUPS["gloo"])
assert wanted[-1] < 0.9 * wanted[0], wanted      # it learns
for name, options in (("plain", {}), ("gradients in the buckets", {"gradient_as_bucket_view": True}), ("one large bucket", {"bucket_cap_mb": 25})):
    got = train(GROUPS["tutti"], **options)
    assert torch.allclose(got, wanted, rtol=1e-5, atol=1e-6), f"{name}: {got}, Gloo's {wanted}"
    if RANK == 0:
        print(f"{name}: loss {got[0]:.4f} to {got[-1]:.4f}, largest difference from Gloo's {float((got - wanted).abs().max()):.1e}", flush=True)
got = train(GROUPS["tutti"], torch_tutti.in_place_hook())
assert torch.allclose(got, wanted, rtol=1e-5, atol=1e-6), f"in place: {got}, Gloo's {wanted}"
got = train(GROUPS["tutti"], torch_tutti.in_place_hook(), gradient_as_bucket_view=True)
assert torch.allclose(got, wanted, rtol=1e-5, atol=1e-6), f"in place, gradients in the buckets: {got}, Gloo's {wanted}"
got = train(GROUPS["tutti"], torch_tutti.bf16_wire_hook())
assert not torch.equal(got, wanted) and torch.allclose(got, wanted, rtol=3e-2), f"bf16 wire: {got}, float32 {wanted}"
if RANK == 0:
    print(f"bf16 wire: loss {got[0]:.4f} to {got[-1]:.4f}, largest difference from float32's {float((got - wanted).abs().max()):.1e}", flush=True)
got = train(GROUPS["tutti"], default_hooks.fp16_compress_hook)
assert not torch.equal(got, wanted) and torch.allclose(got, wanted, rtol=1e-2), f"PyTorch's own float16 hook: {got}, float32 {wanted}"


def train_unevenly(group):
    """Rank r has r batches more than rank 0; those that are through join in."""
    torch.manual_seed(2)
    model = DistributedDataParallel(torch.nn.Linear(30, 3), process_group=group)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    data = torch.Generator().manual_seed(RANK)
    with model.join():
        for _ in range(4 + RANK):
            optimizer.zero_grad()
            model(torch.randn(8, 30, generator=data)).square().mean().backward()
            optimizer.step()
    return torch.cat([p.detach().flatten() for p in model.parameters()])


def train_in_parts(group):
    torch.manual_seed(3)
    model = DistributedDataParallel(torch.nn.Sequential(torch.nn.Linear(30, 40), torch.nn.Linear(40, 3)), process_group=group)
    optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.Adam, process_group=group, lr=0.01)
    data = torch.Generator().manual_seed(RANK)
    for _ in range(4):
        optimizer.zero_grad()
        model(torch.randn(8, 30, generator=data)).square().mean().backward()
        optimizer.step()
    return torch.cat([p.detach().flatten() for p in model.parameters()])


def steps_of(model, parameters):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    data = torch.Generator().manual_seed(RANK)
    for _ in range(4):
        optimizer.zero_grad()
        model(torch.randn(8, 30, generator=data)).square().mean().backward()
        optimizer.step()
    with parameters(model):
        return torch.cat([p.detach().flatten() for p in model.parameters()])


def train_in_shards(group):
    """By FSDP on tutti, by DDP on Gloo."""
    torch.manual_seed(4)
    model = torch.nn.Sequential(torch.nn.Linear(30, 41), torch.nn.Tanh(), torch.nn.Linear(41, 3))
    if group is GROUPS["gloo"]:
        return steps_of(DistributedDataParallel(model, process_group=group), lambda _: contextlib.nullcontext())
    return steps_of(FullyShardedDataParallel(model, process_group=group, device_id=torch.device("cpu")), FullyShardedDataParallel.summon_full_params)


tests = [train_unevenly, train_in_parts]
if int(torch.__version__.split(".")[0]) >= 2:        # before, FSDP wants GPUs
    from torch.distributed.fsdp import FullyShardedDataParallel
    tests.append(train_in_shards)
for trained in tests:
    got, wanted = (trained(GROUPS[name]) for name in ("tutti", "gloo"))
    assert torch.allclose(got, wanted, rtol=1e-5, atol=1e-6), f"{trained.__name__}: {got}, Gloo's {wanted}"
dist.barrier()
GROUPS.clear()      # Gloo's threads may not outlive the interpreter
dist.destroy_process_group()
