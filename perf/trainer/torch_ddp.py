"""The trainer's model in PyTorch under DistributedDataParallel and Gloo: what perf/trainer/steps.py measures against.

torchrun is not needed: RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT say who is who; without WORLD_SIZE there is one rank and no
exchange. One thread a rank, AdamW, gradients clipped to norm 1, random tokens. Rank 0 prints "step SECONDS" for each step.
"""
import argparse
import os
import time

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.joint = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x, mask):
        batch, context, width = x.shape
        q, k, v = (t.reshape(batch, context, self.heads, -1).transpose(1, 2) for t in self.qkv(self.norm1(x)).chunk(3, -1))
        scores = q @ k.transpose(-1, -2) * (width // self.heads) ** -0.5 + mask
        x = x + self.joint((scores.softmax(-1) @ v).transpose(1, 2).reshape(batch, context, width))
        return x + self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh"))


class Gpt(nn.Module):
    def __init__(self, layers, heads, width, vocabulary, context):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(vocabulary, width), nn.Embedding(context, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.register_buffer("mask", torch.full((context, context), float("-inf")).triu(1))

    def forward(self, tokens, targets):
        x = self.tokens(tokens) + self.positions.weight
        for block in self.blocks:
            x = block(x, self.mask)
        logits = self.norm(x) @ self.tokens.weight.t()
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


def main():
    parser = argparse.ArgumentParser()
    for name in ("layers", "heads", "width", "vocabulary", "context", "batch", "steps", "threads"):
        parser.add_argument("--" + name, type=int, required=True)
    a = parser.parse_args()
    torch.set_num_threads(a.threads)
    rank, ranks = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
    torch.manual_seed(1)
    model = Gpt(a.layers, a.heads, a.width, a.vocabulary, a.context)
    if ranks > 1:
        dist.init_process_group("gloo")
        model = nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, betas=(0.9, 0.95), weight_decay=0.1)
    for step in range(a.steps):
        both = torch.randint(a.vocabulary, (2, a.batch, a.context))
        begin = time.perf_counter()
        optimizer.zero_grad()
        loss = model(both[0], both[1])
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        loss.item()
        if rank == 0:
            print("step %.6f" % (time.perf_counter() - begin), flush=True)


main()
