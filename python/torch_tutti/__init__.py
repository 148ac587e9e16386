"""torch.distributed on tutti: import this, then torch.distributed.init_process_group("tutti").

Each process group has a tutti communicator of its own. `Error` is what its operations raise.
"""
import inspect

import torch
import torch.distributed as dist

from . import _C, rendezvous  # noqa: F401
from ._C import Error, ProcessGroupTutti, library_version
from .hooks import bf16_wire_hook, in_place_hook

__all__ = ["Error", "ProcessGroupTutti", "abort", "bf16_wire_hook", "explain", "in_place_hook", "library_version", "zeros"]


def _create(store, rank, size, timeout):
    return _C.create(store, rank, size, timeout)


def _of(group):
    """The ProcessGroupTutti behind a group of torch.distributed; None: the default group."""
    if group is None:
        group = dist.distributed_c10d._get_default_group()
    if not isinstance(group, ProcessGroupTutti) and hasattr(group, "_get_backend"):      # PyTorch 2
        group = group._get_backend(torch.device("cpu"))
    if not isinstance(group, ProcessGroupTutti):
        raise ValueError(f"wanted a process group of backend 'tutti', got {type(group).__name__}")
    return group


def zeros(*sizes, dtype=torch.float32):
    """A tensor of zeros in memory that the ranks of this host read in place: what all ranks reduce there is not copied on its way.

    For buffers that live long: its pages cost more to get than others. Freed like any tensor. Raises Error, out_of_resources.
    """
    return _C.zeros(list(sizes), dtype)


def abort(reason="abort was called", group=None):
    """Ends what is pending in `group`, on all its ranks, with Error 'aborted'. Returns at once; from any thread."""
    _of(group).abort(reason)


def explain(bytes, group=None):
    """Which algorithm and transport an all_reduce of so many bytes takes, as 'direct over shm'."""
    return _of(group).explain(bytes)


if "devices" in inspect.signature(dist.Backend.register_backend).parameters:      # PyTorch 2: a backend says which devices it serves
    dist.Backend.register_backend("tutti", _create, devices=["cpu", "cuda"])
else:
    dist.Backend.register_backend("tutti", _create)
