"""Writes a network of two linear modules as quantize<int8> holds it, quantised by PyTorch, and prints inputs and
outputs for test/deploy/embedded_quantized_test.cc. Run: python3 test/data/embedded/int8.py (from the root)."""

import json
import struct

import torch

torch.manual_seed(1)
ranges = {"a": (-1.0, 2.0), "b": (0.0, 1.5)}
sizes = {"a": (5, 3), "b": (2, 5)}
tensors, layers = {}, {}
for name, (outputs, inputs) in sizes.items():
    weight = torch.randn(outputs, inputs)
    scale = weight.abs().amax(1) / 127
    held = torch.quantize_per_channel(weight, scale, torch.zeros(outputs), 0, torch.qint8)
    bias = torch.randn(outputs)
    low, high = ranges[name]
    step = (high - low) / 255
    zero = round(-low / step)
    tensors[name + ".weight"] = held.int_repr()
    tensors[name + ".scale"] = scale
    tensors[name + ".bias"] = bias
    tensors[name + ".input"] = torch.tensor([step, float(zero)])
    layers[name] = (held, bias, step, zero)


def linear(name, x):
    held, bias, step, zero = layers[name]
    x = torch.quantize_per_tensor(x, step, zero, torch.quint8).dequantize()
    return torch.nn.functional.linear(x, held.dequantize(), bias)


x = torch.tensor([[0.25, -0.75, 1.5], [-3.0, 0.125, 9.0]])
y = linear("b", torch.relu(linear("a", x)))
print(", ".join("%.7g" % v for v in y.flatten().tolist()))

kinds = {torch.int8: "I8", torch.float32: "F32"}
header, data = {}, b""
for name, t in sorted(tensors.items(), key=lambda e: e[1].dtype == torch.int8):
    raw = t.contiguous().numpy().tobytes()
    header[name] = {"dtype": kinds[t.dtype], "shape": list(t.shape), "data_offsets": [len(data), len(data) + len(raw)]}
    data += raw
text = json.dumps(header).encode()
text += b" " * (-len(text) % 8)
with open("test/data/embedded/int8.safetensors", "wb") as file:
    file.write(struct.pack("<Q", len(text)) + text + data)
