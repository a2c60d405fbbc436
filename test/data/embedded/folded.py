"""Writes the weights of a linear module that takes relu(x) * 2: as PyTorch stores them in bfloat16, and as a frozen network
does, which has doubled them. Prints an output for test/deploy/embedded_quantized_test.cc.
Run: python3 test/data/embedded/folded.py (from the root)."""

import json
import struct

import torch

torch.manual_seed(1)
fc = torch.nn.Linear(3, 2).bfloat16().requires_grad_(False)
x = torch.tensor([[0.25, -0.75, 1.5]])
print(", ".join("%.7g" % v for v in fc.float()(torch.relu(x) * 2).flatten().tolist()))
fc.bfloat16()


def write(path, tensors, note):
    header, data = note, b""
    for name, (kind, t) in tensors.items():
        raw = t.contiguous().view(torch.int16).numpy().tobytes() if kind == "BF16" else t.numpy().tobytes()
        header[name] = {"dtype": kind, "shape": list(t.shape), "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + data)


weight, bias = fc.weight, fc.bias
write("test/data/embedded/bfloat16.safetensors", {"fc.weight": ("BF16", weight), "fc.bias": ("BF16", bias)}, {})
write(
    "test/data/embedded/folded.safetensors",
    {"fc.bias": ("F32", bias.float()), "fc.weight": ("BF16", weight * 2)},
    {"__metadata__": {"ikebana.folded": "true"}},
)
