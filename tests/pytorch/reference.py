"""What a collective of torch.distributed must give, from all ranks' inputs: by torch's arithmetic in the widest type, rank by rank.

Gloo carries the inputs, as bytes.
"""
import functools

import torch
import torch.distributed as dist

OPS = {name: getattr(dist.ReduceOp, name) for name in ("SUM", "AVG", "PRODUCT", "MIN", "MAX", "BAND", "BOR", "BXOR")}
BITWISE = ("BAND", "BOR", "BXOR")
TYPES = (torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.float16, torch.bfloat16, torch.float32, torch.float64,
         torch.complex64, torch.complex128)
# Relative errors of a sum or product of a few numbers, rounded once or at each step.
CLOSE = {torch.float16: 4e-3, torch.bfloat16: 3e-2, torch.float32: 2e-6, torch.float64: 1e-14, torch.complex64: 4e-6, torch.complex128: 2e-14}


def allowed(op, dtype):
    """Whether the reduction means something for the type."""
    if dtype == torch.bool:
        return op != "AVG"
    if dtype.is_complex:
        return op in ("SUM", "AVG")
    return not (dtype.is_floating_point and op in BITWISE)


def values(dtype, shape, generator):
    """Random, and such that sums and products of a few stay in the type's range."""
    if dtype == torch.bool:
        return torch.randint(0, 2, shape, generator=generator).bool()
    if dtype.is_complex:
        part = torch.float32 if dtype == torch.complex64 else torch.float64
        return torch.complex(torch.randn(shape, generator=generator, dtype=part), torch.randn(shape, generator=generator, dtype=part))
    if dtype.is_floating_point:
        return torch.randn(shape, generator=generator).to(dtype)
    low = 0 if dtype == torch.uint8 else -5
    return torch.randint(low, 6, shape, generator=generator).to(dtype)


def inputs_of_all(tensor, gloo):
    """Each rank's tensor."""
    own = torch.empty(tensor.numel(), dtype=tensor.dtype).copy_(tensor.reshape(-1)).view(torch.uint8)
    bytes_of = [torch.empty_like(own) for _ in range(dist.get_world_size(gloo))]
    if own.numel():
        dist.all_gather(bytes_of, own, group=gloo)
    return [b.view(tensor.dtype).view(tensor.shape) for b in bytes_of]


def reduced(op, tensors):
    dtype = tensors[0].dtype
    wide = torch.complex128 if dtype.is_complex else torch.float64 if dtype.is_floating_point else torch.int64
    parts = [t.to(wide) for t in tensors]
    step = {"SUM": torch.add, "AVG": torch.add, "PRODUCT": torch.mul, "MIN": torch.minimum, "MAX": torch.maximum, "BAND": torch.bitwise_and,
            "BOR": torch.bitwise_or, "BXOR": torch.bitwise_xor}[op]
    total = functools.reduce(step, parts)
    if op == "AVG":
        total = torch.div(total, len(parts), rounding_mode=None if wide != torch.int64 else "trunc")
    if dtype == torch.bool:
        return total != 0
    return total.to(dtype)


def same(got, wanted, what):
    assert got.dtype == wanted.dtype and got.shape == wanted.shape, f"{what}: {got.dtype} {got.shape}, wanted {wanted.dtype} {wanted.shape}"
    if got.dtype in CLOSE:
        wide = torch.complex128 if got.dtype.is_complex else torch.float64
        off, size = (got.to(wide) - wanted.to(wide)).abs(), wanted.to(wide).abs()
        assert bool((off <= CLOSE[got.dtype] * (size + 1)).all()), f"{what}: off by up to {off.max()} of {size.max()}"
    else:
        assert torch.equal(got, wanted), f"{what}: {int((got != wanted).sum())} of {got.numel()} differ, got {got.flatten()[:4]}, wanted {wanted.flatten()[:4]}"
