"""Communication hooks for DistributedDataParallel: model.register_comm_hook(None, torch_tutti.bf16_wire_hook()).

Each averages gradients in buffers of its own, one for each bucket, in memory that the ranks of a host read in place (tutti's allocate).
Make one for each model. Its group is the state that it is registered with; None: the default group.
"""
import torch
import torch.distributed as dist

from . import _C


def in_place_hook():
    """Gradients travel as they are: a bucket is copied once, here, instead of by the library on its way to each rank."""
    return _averaging_hook(lambda dtype: dtype)


def bf16_wire_hook():
    """float32 gradients travel as bfloat16, half the bytes, and are added in float32.

    Each is rounded to 8 bits of precision once before it leaves and once as an average.
    """
    return _averaging_hook(lambda dtype: torch.bfloat16 if dtype == torch.float32 else dtype)


def _averaging_hook(wire_type):
    buffers = {}      # by the bucket's index

    def averaging_hook(group, bucket):
        gradients = bucket.buffer()
        dtype = wire_type(gradients.dtype)
        wire = buffers.get(bucket.index())
        if wire is None or wire.numel() != gradients.numel() or wire.dtype != dtype:      # DDP forms its buckets anew after the first step
            wire = buffers[bucket.index()] = _C.zeros([gradients.numel()], dtype)
        wire.copy_(gradients)
        work = dist.all_reduce(wire, op=dist.ReduceOp.AVG, group=group, async_op=True)

        def hand_over(future):
            future.value()      # raises what went wrong
            return wire if wire.dtype == gradients.dtype else gradients.copy_(wire)

        return work.get_future().then(hand_over)

    return averaging_hook
