#!/usr/bin/env python3
"""Seconds a training step takes, medians over interleaved rounds:

  gpt2-124m   GPT-2 124M, B = 4, T = 64, f32: one rank of two threads, and two ranks of one thread each at the same global batch, which
              update the same weights each, or half of them (ZeRO-1)
  torch       6 layers, width 384, vocabulary 8192, T = 128, 4 samples a rank, two ranks of one thread: this trainer and PyTorch
              with Gloo's DDP, and each alone, in turn. Left out where python3 has no torch.

steps.py BUILD [--case CASE] [--rounds N] [--steps N]; BUILD is the build folder, with bin/train and bin/tutti. The first step of each
run warms up and is not counted. OPENBLAS_CORETYPE is taken out of the environment: it may hold OpenBLAS to slower kernels than the
processor has. PyTorch's OpenBLAS is told how many threads it has: torch.set_num_threads does not reach it.
"""
import argparse
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
SMALL = {"layers": 6, "heads": 6, "width": 384, "vocabulary": 8192, "context": 128}
ENVIRONMENT = {k: v for k, v in os.environ.items() if k != "OPENBLAS_CORETYPE"}


def ours(build, ranks, threads, batch, steps, flags):
    """Seconds of each counted step; micro-batches and global batch as one sample of `batch` a rank."""
    with tempfile.TemporaryDirectory() as folder:
        train = [build + "/bin/train", "--threads", threads, "--batch", batch, "--micro-batches", ranks, "--steps", steps + 1,
                 "--checkpoint-every", 0, "--light-every", 0, "--run", folder, *flags]
        command = train if ranks == 1 else [build + "/bin/tutti", "run", "-n", ranks, *train]
        subprocess.run([str(word) for word in command], check=True, stdout=subprocess.DEVNULL, env=ENVIRONMENT)
        with open(folder + "/rank-0.jsonl") as log:
            return [json.loads(line)["seconds"] for line in log][1:]


def torch(python, ranks, threads, batch, steps):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [python, HERE + "/torch_ddp.py", "--batch", batch, "--steps", steps + 1, "--threads", threads]
    for name, value in SMALL.items():
        command += ["--" + name, value]
    processes = []
    blas = {"OPENBLAS_NUM_THREADS": str(threads), "OMP_NUM_THREADS": str(threads)}
    for rank in range(ranks):
        names = {"RANK": str(rank), "WORLD_SIZE": str(ranks), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)} if ranks > 1 else {}
        processes.append(subprocess.Popen([str(word) for word in command], env={**ENVIRONMENT, **blas, **names}, text=True,
                                          stdout=subprocess.PIPE if rank == 0 else subprocess.DEVNULL))
    text = processes[0].communicate()[0]
    if any(process.wait() for process in processes):
        sys.exit("PyTorch's run failed")
    return [float(line.split()[1]) for line in text.splitlines() if line.startswith("step ")][1:]


def flags_of(model):
    return [word for name, value in model.items() for word in ("--" + name, value)]


def contenders(a):
    """Of a case: name -> (tokens a step over all ranks, a function that gives seconds of steps)."""
    if a.case == "gpt2-124m":
        flags = ["--preset", "gpt2-124m", "--context", 64]
        return {"1 rank x 2 threads": (256, lambda: ours(a.build, 1, 2, 4, a.steps, flags)),
                "2 ranks x 1 thread": (256, lambda: ours(a.build, 2, 1, 2, a.steps, flags)),
                "2 ranks x 1 thread, ZeRO-1": (256, lambda: ours(a.build, 2, 1, 2, a.steps, flags + ["--zero", 1]))}
    small = flags_of(SMALL)
    return {"tutti, 2 ranks": (1024, lambda: ours(a.build, 2, 1, 4, a.steps, small)),
            "tutti, 2 ranks, bf16 wire": (1024, lambda: ours(a.build, 2, 1, 4, a.steps, small + ["--wire", "bf16"])),
            "PyTorch + Gloo DDP, 2 ranks": (1024, lambda: torch(a.python, 2, 1, 4, a.steps)),
            "tutti, 1 rank": (512, lambda: ours(a.build, 1, 1, 4, a.steps, small)),
            "PyTorch, 1 rank": (512, lambda: torch(a.python, 1, 1, 4, a.steps))}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build")
    parser.add_argument("--case", choices=("gpt2-124m", "torch"), default="gpt2-124m")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--python", default="/usr/bin/python3" if os.path.exists("/usr/bin/python3") else "python3")
    a = parser.parse_args()
    there = subprocess.run([a.python, "-c", "import torch"], capture_output=True).returncode == 0
    all_of_case = {name: one for name, one in contenders(a).items() if there or not name.startswith("PyTorch")}
    if not there and a.case == "torch":
        print("no PyTorch for %s (Debian: python3-torch)" % a.python)
    seconds = {name: [] for name in all_of_case}
    for _ in range(a.rounds):
        for name, (_, measure) in all_of_case.items():
            seconds[name] += measure()
    print("%-28s %10s %10s %10s %12s" % ("", "median s", "least s", "most s", "tokens/s"))
    for name, (tokens, _) in all_of_case.items():
        median = statistics.median(seconds[name])
        print("%-28s %10.3f %10.3f %10.3f %12.0f" % (name, median, min(seconds[name]), max(seconds[name]), tokens / median))


main()
