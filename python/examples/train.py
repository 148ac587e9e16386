"""A small Transformer learns this file: `tutti run -n 2 python3 train.py`, or torchrun, or any launcher that torch.distributed knows."""
import pathlib

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import torch_tutti  # noqa: F401, makes "tutti" a backend

CONTEXT, WIDTH = 48, 64


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.letter, self.place = nn.Embedding(128, WIDTH), nn.Embedding(CONTEXT, WIDTH)
        self.layers = nn.TransformerEncoder(nn.TransformerEncoderLayer(WIDTH, 4, 4 * WIDTH, 0, batch_first=True, norm_first=True), 2)
        self.head = nn.Linear(WIDTH, 128)
        self.register_buffer("mask", torch.full((CONTEXT, CONTEXT), float("-inf")).triu(1))

    def forward(self, text):
        return self.head(self.layers(self.letter(text) + self.place.weight, self.mask))


dist.init_process_group("tutti")
model = DistributedDataParallel(Model())
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
text = torch.tensor(list(pathlib.Path(__file__).read_bytes()))
own_samples = torch.Generator().manual_seed(dist.get_rank())
for step in range(101):
    starts = torch.randint(len(text) - CONTEXT, (16, 1), generator=own_samples)
    windows = text[starts + torch.arange(CONTEXT + 1)]
    loss = nn.functional.cross_entropy(model(windows[:, :-1]).flatten(0, 1), windows[:, 1:].flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 20 == 0:
        mean = loss.detach()
        dist.all_reduce(mean, op=dist.ReduceOp.AVG)
        if dist.get_rank() == 0:
            print(f"step {step}: loss {mean.item():.3f} on {dist.get_world_size()} ranks", flush=True)
dist.destroy_process_group()
