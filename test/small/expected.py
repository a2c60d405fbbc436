#!/usr/bin/env python3
"""Writes expected.txt, what PyTorch 1.13 gives for the networks of network.cc: a name and numbers in each line."""
import torch


def numbers(n):
    return torch.tensor([i * 37 % 64 / 64 - 0.5 for i in range(n)])


def inputs(shape):
    n = torch.Size(shape).numel()
    return [(torch.arange(n) + 7 * call).reshape(shape) / 16 for call in range(5)]


def load(net, total):
    data, at = numbers(total), 0
    for p in net.parameters():
        p.data = data[at:at + p.numel()].reshape(p.shape)
        at += p.numel()
    assert at == total
    return net


def line(name, outputs):
    print(name, *(f"{v:.9g}" for y in outputs for v in y.flatten().tolist()))


nn = torch.nn
with torch.no_grad():
    mlp = load(nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 4), nn.Tanh()), 420)
    line("MLP", [mlp(x) for x in inputs((1, 8))])
    cnn = load(nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(36, 3)), 151)
    line("CNN", [cnn(x) for x in inputs((1, 1, 8, 8))])
    lstm = load(nn.ModuleList([nn.LSTM(1, 8), nn.Linear(8, 1)]), 361)
    state, outputs = None, []
    for x in inputs((1, 1, 1)):
        y, state = lstm[0](x, state)
        outputs.append(lstm[1](y))
    line("LSTM", outputs)
