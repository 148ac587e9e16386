"""A training step of a 6-layer, 384-wide GPT (13.8 M parameters, float32) under DistributedDataParallel: with gradients exchanged by tutti,
by Gloo, by tutti with its hooks, and without exchange, in turn, round by round. Arguments: ROUNDS STEPS. Rank 0 prints a table.

Started as the ranks of one job; OMP_NUM_THREADS should be what each rank may use of the cores.
"""
import statistics
import sys
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import torch_tutti

LAYERS, WIDTH, HEADS, VOCABULARY, CONTEXT, SAMPLES = 6, 384, 6, 8192, 128, 4


class Gpt(nn.Module):
    def __init__(self):
        super().__init__()
        self.token, self.place = nn.Embedding(VOCABULARY, WIDTH), nn.Embedding(CONTEXT, WIDTH)
        layer = nn.TransformerEncoderLayer(WIDTH, HEADS, 4 * WIDTH, 0, nn.functional.gelu, batch_first=True, norm_first=True)
        self.layers = nn.TransformerEncoder(layer, LAYERS, nn.LayerNorm(WIDTH))
        self.head = nn.Linear(WIDTH, VOCABULARY, bias=False)
        self.head.weight = self.token.weight
        self.register_buffer("mask", torch.full((CONTEXT, CONTEXT), float("-inf")).triu(1))

    def forward(self, tokens):
        return self.head(self.layers(self.token(tokens) + self.place.weight, self.mask))


def contender(group, hook=None):
    torch.manual_seed(1)
    model = DistributedDataParallel(Gpt(), process_group=group, gradient_as_bucket_view=True)
    if hook:
        model.register_comm_hook(group, hook)
    return model, torch.optim.SGD(model.parameters(), lr=0.01)


def step(model, optimizer, tokens):
    loss = nn.functional.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())
    optimizer.zero_grad(set_to_none=False)
    loss.backward()
    optimizer.step()


def seconds(model, optimizer, tokens, steps, exchange):
    """Of each step: the slower rank counts, by a barrier before and behind."""
    times = []
    for _ in range(steps):
        dist.barrier()
        start = time.perf_counter()
        if exchange:
            step(model, optimizer, tokens)
        else:
            with model.no_sync():
                step(model, optimizer, tokens)
        dist.barrier()
        times.append(time.perf_counter() - start)
    return times


def main(rounds, steps):
    dist.init_process_group("tutti")
    torch.set_num_threads(max(1, torch.get_num_threads()))
    gloo = dist.new_group(backend="gloo")
    tutti = dist.group.WORLD
    entrants = {"tutti": contender(tutti), "gloo": contender(gloo), "tutti, in place": contender(tutti, torch_tutti.in_place_hook()),
                "tutti, bf16": contender(tutti, torch_tutti.bf16_wire_hook())}
    entrants["no exchange"] = entrants["tutti"]
    tokens = torch.randint(VOCABULARY, (SAMPLES, CONTEXT + 1), generator=torch.Generator().manual_seed(dist.get_rank()))
    times = {name: [] for name in entrants}
    for round in range(-1, rounds):
        for name, (model, optimizer) in entrants.items():
            taken = seconds(model, optimizer, tokens, steps, name != "no exchange")
            if round >= 0:      # the first one warms up
                times[name].append(statistics.median(taken))
    if dist.get_rank() == 0:
        count = sum(p.numel() for p in entrants["tutti"][0].parameters())
        print(f"\n## DDP step, {count / 1e6:.1f} M parameters, {dist.get_world_size()} ranks, {SAMPLES} x {CONTEXT} tokens a rank\n")
        print(f"|{'exchange':>16} | median ms |   best ms | step / no exchange, median over rounds |\n|{'':->16}:|{'':->10}:|{'':->10}:|{'':->40}:|")
        for name in times:
            over = statistics.median(a / b for a, b in zip(times[name], times["no exchange"]))
            print(f"|{name:>16} |{1e3 * statistics.median(times[name]):>10.1f} |{1e3 * min(times[name]):>10.1f} |{over:>40.3f} |")
    dist.destroy_process_group()


main(int(sys.argv[1]), int(sys.argv[2]))
