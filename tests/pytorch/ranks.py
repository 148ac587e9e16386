"""Starts a script as the ranks of a job, without a launcher: for what a launcher would not allow."""
import os
import signal
import socket
import subprocess
import sys

LAUNCHER_NAMES = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "TUTTI_RANK", "TUTTI_RANK_COUNT", "TUTTI_ADDRESS")


def free_ports(count):
    sockets = [socket.socket() for _ in range(count)]
    for s in sockets:
        s.bind(("127.0.0.1", 0))
    ports = [s.getsockname()[1] for s in sockets]
    for s in sockets:
        s.close()
    return ports


def start(script, environments, wanted):
    """One process for each environment. Ends this one, with 0 when the ranks have ended as wanted."""
    clean = {name: value for name, value in os.environ.items() if name not in LAUNCHER_NAMES}
    ranks = [subprocess.Popen([sys.executable, script], env={**clean, **own, "TEST_IS_RANK": "1"}) for own in environments]
    ends = [rank.wait(timeout=150) for rank in ranks]
    sys.exit(0 if ends == wanted else f"the ranks ended with {ends}, wanted {wanted}")


def start_all(script, size, killed):
    """The same for ranks that meet by environment variables, of which one is killed. Returns in a rank."""
    if is_rank():
        return
    port = str(free_ports(1)[0])
    start(script, [{"RANK": str(r), "WORLD_SIZE": str(size), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port} for r in range(size)],
          [-signal.SIGKILL if r == killed else 0 for r in range(size)])


def failure_of(call, what="it"):
    """The torch_tutti.Error by which the call fails."""
    import torch_tutti
    try:
        call()
    except RuntimeError as error:      # what scripts catch
        assert isinstance(error, torch_tutti.Error), repr(error)
        return error
    raise AssertionError(f"{what}: it did not fail")


def is_rank():
    return os.environ.pop("TEST_IS_RANK", None) is not None
