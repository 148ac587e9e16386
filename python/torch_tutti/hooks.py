"""Communication hooks for DistributedDataParallel."""
import torch
import torch.distributed as dist


def bf16_wire_hook(group, bucket):
    """Averages gradients that travel as bfloat16 and are added in float32: model.register_comm_hook(None, torch_tutti.bf16_wire_hook).

    Half the bytes of float32 gradients. Each gradient is rounded to bfloat16 (8 bits of precision) once before it leaves and once
    as a sum. `group`: the process group, None for the default one.
    """
    group = group if group is not None else dist.group.WORLD
    gradients = bucket.buffer()
    wire = gradients.to(torch.bfloat16)
    work = dist.all_reduce(wire, op=dist.ReduceOp.AVG, group=group, async_op=True)

    def widen(future):
        future.value()
        return gradients.copy_(wire)

    return work.get_future().then(widen)
