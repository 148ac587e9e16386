"""The model in PyTorch, written from its definition: the independent path for torch_test.cpp.

reference.py FOLDER reads config.json, weights.safetensors and tokens.json there, and writes result.safetensors: the logits, the
loss and each gradient of the starting weights, and the losses of ten steps of AdamW on the same batch.
"""
import json
import math
import struct
import sys

import torch
import torch.nn.functional as F


def read(path):
    with open(path, "rb") as file:
        data = bytearray(file.read())
    length = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:8 + length])
    tensors = {}
    for name, entry in header.items():
        if name != "__metadata__":
            begin, end = entry["data_offsets"]
            part = data[8 + length + begin:8 + length + end]
            tensors[name] = torch.frombuffer(part, dtype=torch.float32).reshape(entry["shape"]).clone()
    return tensors


def write(path, tensors):
    header, body = {}, b""
    for name, tensor in tensors.items():
        numbers = tensor.detach().flatten().tolist()
        part = struct.pack("<%df" % len(numbers), *numbers)
        header[name] = {"dtype": "F32", "shape": list(tensor.shape), "data_offsets": [len(body), len(body) + len(part)]}
        body += part
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + body)


class Reference:
    def __init__(self, config, weights):
        self.c, self.w = config, weights

    def norm(self, name, x):
        if self.c["norm"] == "rms":
            return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5) * self.w[name + ".weight"]
        return F.layer_norm(x, x.shape[-1:], self.w[name + ".weight"], self.w.get(name + ".bias"), 1e-5)

    def linear(self, name, x):
        y = x @ self.w[name + ".weight"]
        return y + self.w[name + ".bias"] if name + ".bias" in self.w else y

    def turned(self, x):                            # x: batch, heads, context, size
        half = x.shape[-1] // 2
        frequency = 10000.0 ** (-torch.arange(half, dtype=torch.float64) / half)
        angle = torch.arange(x.shape[-2], dtype=torch.float64)[:, None] * frequency
        cosine, sine = angle.cos().float(), angle.sin().float()
        low, high = x[..., :half], x[..., half:]
        return torch.cat((low * cosine - high * sine, high * cosine + low * sine), -1)

    def attention(self, name, x):
        batch, context, width = x.shape
        heads, shared = self.c["heads"], self.c["kv_heads"]
        size = width // heads
        q, k, v = self.linear(name + "attn.c_attn", x).split((heads * size, shared * size, shared * size), -1)
        q, k, v = (t.reshape(batch, context, -1, size).transpose(1, 2) for t in (q, k, v))
        if self.c["position"] == "rope":
            q, k = self.turned(q), self.turned(k)
        k, v = (t.repeat_interleave(heads // shared, 1) for t in (k, v))
        scores = q @ k.transpose(-1, -2) / math.sqrt(size)
        hidden = torch.triu(torch.ones(context, context, dtype=torch.bool), 1)
        p = scores.masked_fill(hidden, float("-inf")).softmax(-1)
        return self.linear(name + "attn.c_proj", (p @ v).transpose(1, 2).reshape(batch, context, width))

    def mlp(self, name, x):
        x = self.linear(name + "mlp.c_fc", x)
        if self.c["activation"] == "swiglu":
            gate, up = x.chunk(2, -1)
            x = F.silu(gate) * up
        else:
            x = F.gelu(x, approximate="tanh")
        return self.linear(name + "mlp.c_proj", x)

    def logits(self, tokens):
        x = self.w["wte.weight"][tokens]
        if self.c["position"] == "learned":
            x = x + self.w["wpe.weight"][:tokens.shape[1]]
        for layer in range(self.c["layers"]):
            h = "h.%d." % layer
            x = x + self.attention(h, self.norm(h + "ln_1", x))
            x = x + self.mlp(h, self.norm(h + "ln_2", x))
        return self.norm("ln_f", x) @ self.w["wte.weight"].t()


def main(folder):
    config = json.load(open(folder + "/config.json"))
    batch = json.load(open(folder + "/tokens.json"))
    weights = read(folder + "/weights.safetensors")
    for tensor in weights.values():
        tensor.requires_grad_()
    model = Reference(config, weights)
    tokens, targets = (torch.tensor(batch[key]).reshape(batch["samples"], -1) for key in ("tokens", "targets"))
    matrices = [t for t in weights.values() if t.dim() == 2]
    others = [t for t in weights.values() if t.dim() != 2]
    optimizer = torch.optim.AdamW([{"params": matrices, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}], lr=1e-3,
                                  betas=(0.9, 0.95), eps=1e-8)
    result, losses = {}, []
    for step in range(10):
        optimizer.zero_grad()
        logits = model.logits(tokens)
        loss = F.cross_entropy(logits.reshape(-1, logits.shape[-1]), targets.reshape(-1))
        loss.backward()
        losses.append(loss.item())
        if step == 0:
            result["logits"] = logits.detach().clone()
            for name, tensor in weights.items():
                result["gradient " + name] = tensor.grad.clone()
        optimizer.step()
    result["losses"] = torch.tensor(losses)
    write(folder + "/result.safetensors", result)


if __name__ == "__main__":
    main(sys.argv[1])
