"""Records an MLP that PyTorch trains in bfloat16 with float master weights, and the averages of two
processes' gradients in float and in bfloat16.

    /usr/bin/python3 test/data/mixed_precision.py           write mixed_precision.safetensors
    /usr/bin/python3 test/data/mixed_precision.py --check   recompute its outputs

PyTorch 1.13 has no mixed precision policy for CPUs, so this script makes the casts of FSDP:
parameters and inputs to bfloat16, the output to float, gradients of parameters in bfloat16, the
average of the ranks in the reduce type, the step on the masters in float.
"""

import os
from collections import OrderedDict

from common import HERE, labels, uniform, write_or_check

import torch
import torch.nn.functional as F

PATH = os.path.join(HERE, "mixed_precision.safetensors")
LOW = torch.bfloat16
STEPS, BATCH, RATE = 5, 12, 0.1
SHAPES = OrderedDict([("fc1.weight", [17, 11]), ("fc1.bias", [17]), ("fc2.weight", [13, 17]),
                      ("fc2.bias", [13]), ("fc3.weight", [5, 13]), ("fc3.bias", [5])])


def masters():
    return OrderedDict((k, uniform(f"mixed {k}", s, torch.float32, -0.4, 0.4))
                       for k, s in SHAPES.items())


def batch(step):
    return (uniform(f"mixed x {step}", [BATCH, 11], torch.float32),
            labels(f"mixed y {step}", [BATCH], 5))


def forward(p, x):
    """The network with parameters and inputs of one type."""
    h = torch.tanh(F.linear(x, p["fc1.weight"], p["fc1.bias"]))
    h = F.relu(F.linear(h, p["fc2.weight"], p["fc2.bias"]))
    return F.linear(h, p["fc3.weight"], p["fc3.bias"])


def gradients(weights, x, y):
    """The output in float, the loss, and the gradients in bfloat16 of a bfloat16 copy."""
    low = OrderedDict((k, w.to(LOW).requires_grad_()) for k, w in weights.items())
    x = x.to(LOW).requires_grad_()
    out = forward(low, x).float()
    loss = F.cross_entropy(out, y)
    loss.backward()
    return out.detach(), loss.detach(), OrderedDict((k, w.grad) for k, w in low.items()), x.grad


def step(weights, grads):
    for k in weights:
        weights[k] = weights[k] - RATE * grads[k].float()


def record():
    torch.set_num_threads(1)
    tensors = OrderedDict()
    for k, w in masters().items():
        tensors[f"initial/{k}"] = w
    for s in range(STEPS):
        tensors[f"x/{s}"], tensors[f"y/{s}"] = batch(s)

    weights = masters()
    for s in range(STEPS):
        out, loss, grads, gx = gradients(weights, *batch(s))
        tensors[f"alone/output/{s}"] = out
        tensors[f"alone/loss/{s}"] = loss.reshape(1)
        if s == 0:
            tensors["alone/gx"] = gx.float()
            for k, g in grads.items():
                tensors[f"alone/grad.{k}"] = g.float()
        step(weights, grads)
    for k, w in weights.items():
        tensors[f"alone/final.{k}"] = w

    # Two ranks with a half of each batch.
    for name, reduce in (("float", torch.float32), ("bfloat16", LOW)):
        weights = masters()
        for s in range(STEPS):
            x, y = batch(s)
            half = BATCH // 2
            ranks = [gradients(weights, x[i:i + half], y[i:i + half])[2] for i in (0, half)]
            mean = OrderedDict()
            for k in weights:
                sent = [g[k].to(reduce).float() for g in ranks]
                mean[k] = ((sent[0] + sent[1]) * 0.5).to(reduce)
            if s == 0:
                for k, g in mean.items():
                    tensors[f"{name}/grad.{k}"] = g.float()
            step(weights, mean)
        for k, w in weights.items():
            tensors[f"{name}/final.{k}"] = w

    # Two batches accumulated before a step, in each type.
    for name, reduce in (("float", torch.float32), ("bfloat16", LOW)):
        weights = masters()
        total = None
        for s in range(4):
            grads = gradients(weights, *batch(s))[2]
            if total is None:
                total = OrderedDict((k, g.to(reduce)) for k, g in grads.items())
            else:
                for k, g in grads.items():
                    total[k] += g
        for k, g in total.items():
            tensors[f"accumulated_{name}/grad.{k}"] = g.float()
    return tensors


def main():
    write_or_check(PATH, record(), "mixed_precision")


if __name__ == "__main__":
    main()
