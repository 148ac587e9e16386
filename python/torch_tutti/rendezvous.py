"""init_method="tutti://": ranks find each other as all programs on tutti do (docs/launching.md), whoever started them: tutti run, torchrun, mpirun, srun.

What they agree on is a TCPStore of rank 0, so that everything else of torch.distributed is as with any other method.
"""
import os
import socket

from torch.distributed import TCPStore
from torch.distributed.constants import default_pg_timeout
from torch.distributed.rendezvous import register_rendezvous_handler

from . import _C


def _meet(url, timeout=default_pg_timeout, **_):
    world = _C.World(timeout)
    if world.rank == 0:
        host = "127.0.0.1" if world.on_one_host else os.environ.get("MASTER_ADDR") or socket.getfqdn()
        store = TCPStore(host, 0, world.size, True, timeout, wait_for_workers=False)
        world.share(f"{host} {store.port}")
    else:
        host, port = world.share("").split()
        store = TCPStore(host, int(port), world.size, False, timeout)
    yield store, world.rank, world.size
    raise RuntimeError("tutti:// meets once")


register_rendezvous_handler("tutti", _meet)
