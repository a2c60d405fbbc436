"""Writes guitar.wav, a plucked string (Karplus and Strong, 1983); amplifier.safetensors, an LSTM that PyTorch trained
to sound like an overdriven amplifier; and amplified.safetensors, its output for guitar.wav.

    /usr/bin/python3 examples/data/make_amplifier.py
"""

import os
import sys
import wave

import numpy as np
import torch
from torch import nn

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "..", "test", "data"))
from common import write_safetensors  # noqa: E402

RATE = 22050


def pluck(frequency, seconds, rng):
    n = int(RATE / frequency)
    line = rng.uniform(-1, 1, n)
    out = np.empty(int(RATE * seconds))
    for i in range(len(out)):
        out[i] = line[i % n]
        line[i % n] = 0.498 * (line[i % n] + line[(i + 1) % n])
    return out


def overdrive(x):
    """Soft clipping, then a low-pass filter."""
    y, out = 0.0, np.empty_like(x)
    for i, v in enumerate(np.tanh(4 * x)):
        y += 0.35 * (v - y)
        out[i] = y
    return out


class Amplifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(1, 8)
        self.out = nn.Linear(8, 1)

    def forward(self, x):
        return self.out(self.lstm(x)[0])


torch.manual_seed(1)
rng = np.random.default_rng(1)
train = np.concatenate([pluck(f, 0.3, rng) for f in (82, 110, 147, 196, 247, 330)])
net = Amplifier()
x = torch.tensor(train, dtype=torch.float32).reshape(-1, 441, 1).transpose(0, 1)
y = torch.tensor(overdrive(train), dtype=torch.float32).reshape(-1, 441, 1).transpose(0, 1)
optimizer = torch.optim.Adam(net.parameters(), lr=1e-2)
for step in range(400):
    optimizer.zero_grad()
    loss = (net(x)[40:] - y[40:]).square().mean()
    loss.backward()
    optimizer.step()
    if step % 100 == 99:
        print(step + 1, loss.item())

played = (np.clip(pluck(110, 0.25, rng), -1, 1) * 32767).astype(np.int16)
with wave.open(os.path.join(HERE, "guitar.wav"), "wb") as f:
    f.setnchannels(1)
    f.setsampwidth(2)
    f.setframerate(RATE)
    f.writeframes(played.tobytes())
with torch.no_grad():
    heard = net(torch.tensor(played.astype(np.float32) / 32768).reshape(-1, 1, 1)).reshape(-1)
write_safetensors(os.path.join(HERE, "amplifier.safetensors"), net.state_dict(), {})
write_safetensors(os.path.join(HERE, "amplified.safetensors"), {"output": heard}, {})
