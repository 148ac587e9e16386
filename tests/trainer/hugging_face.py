"""What Hugging Face's GPT2LMHeadModel makes of a folder, for torch_test.cpp: built from nothing but the names, shapes and settings that the
published GPT-2 has in model.safetensors and config.json.

hugging_face.py FOLDER reads config.json and model.safetensors there (or the parts that model.safetensors.index.json names), and tokens.json,
and writes logits.safetensors. It fails where a tensor is missing, is one too many or has another shape.
"""
import json
import math
import os
import struct
import sys

import torch
import torch.nn.functional as F

from reference import read, write


def expected(config):
    """Name -> shape. The published file has each block's causal mask too (attn.bias), which is no weight and is left out in newer ones; the
    head has no tensor of its own."""
    width, hidden = config["n_embd"], config["n_inner"] or 4 * config["n_embd"]
    shapes = {"wte.weight": [config["vocab_size"], width], "wpe.weight": [config["n_positions"], width], "ln_f.weight": [width], "ln_f.bias": [width]}
    for layer in range(config["n_layer"]):
        h = "h.%d." % layer
        for norm in ("ln_1", "ln_2"):
            shapes[h + norm + ".weight"], shapes[h + norm + ".bias"] = [width], [width]
        for name, inputs, outputs in (("attn.c_attn", width, 3 * width), ("attn.c_proj", width, width), ("mlp.c_fc", width, hidden), ("mlp.c_proj", hidden, width)):
            shapes[h + name + ".weight"], shapes[h + name + ".bias"] = [inputs, outputs], [outputs]      # Conv1D: inputs first
    return shapes


def tensors_of(folder):
    index = folder + "/model.safetensors.index.json"
    if not os.path.exists(index):
        names = None
        files = ["model.safetensors"]
    else:
        with open(index) as file:
            names = json.load(file)["weight_map"]
        files = sorted(set(names.values()))
    tensors = {}
    for name in files:
        path = folder + "/" + name
        with open(path, "rb") as file:      # the loader refuses files that do not say whose tensors they are
            header = json.loads(file.read(struct.unpack("<Q", file.read(8))[0]))
        assert header["__metadata__"]["format"] == "pt", path
        part = read(path)
        assert names is None or all(names[tensor] == name for tensor in part), path
        tensors.update(part)
    return tensors


def conv1d(w, name, x):
    return torch.addmm(w[name + ".bias"], x.reshape(-1, x.shape[-1]), w[name + ".weight"]).reshape(*x.shape[:-1], -1)


def logits(config, w, tokens):
    assert config["model_type"] == "gpt2" and config["activation_function"] == "gelu_new" and config["tie_word_embeddings"]
    batch, context = tokens.shape
    heads, epsilon = config["n_head"], config["layer_norm_epsilon"]

    def norm(name, x):
        return F.layer_norm(x, x.shape[-1:], w[name + ".weight"], w[name + ".bias"], epsilon)

    x = F.embedding(tokens, w["wte.weight"]) + w["wpe.weight"][:context]
    hidden = torch.ones(context, context).tril() == 0
    for layer in range(config["n_layer"]):
        h = "h.%d." % layer
        q, k, v = (t.reshape(batch, context, heads, -1).transpose(1, 2) for t in conv1d(w, h + "attn.c_attn", norm(h + "ln_1", x)).chunk(3, -1))
        scores = (q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5).masked_fill(hidden, float("-inf"))
        x = x + conv1d(w, h + "attn.c_proj", (scores.softmax(-1) @ v).transpose(1, 2).reshape(x.shape))
        up = conv1d(w, h + "mlp.c_fc", norm(h + "ln_2", x))
        x = x + conv1d(w, h + "mlp.c_proj", 0.5 * up * (1 + torch.tanh((2 / math.pi) ** 0.5 * (up + 0.044715 * up ** 3))))
    return F.linear(norm("ln_f", x), w["wte.weight"])


def main(folder):
    with open(folder + "/config.json") as file:
        config = json.load(file)
    with open(folder + "/tokens.json") as file:
        batch = json.load(file)
    tensors = tensors_of(folder)
    found = {name: list(tensor.shape) for name, tensor in tensors.items()}
    wanted = expected(config)
    assert found == wanted, "missing or other: %s" % sorted(name for name in {**found, **wanted} if found.get(name) != wanted.get(name))
    tokens = torch.tensor(batch["tokens"]).reshape(batch["samples"], -1)
    write(folder + "/logits.safetensors", {"logits": logits(config, tensors, tokens)})


main(sys.argv[1])
