"""Records PyTorch's results for infinities, NaN, and the largest and smallest numbers.

    /usr/bin/python3 test/data/extremes.py           write extremes.safetensors
    /usr/bin/python3 test/data/extremes.py --check   recompute its outputs

Activations: `y` and `gx` (for an output gradient of 1.5) of each number alone, and `gx_among` for 64 copies of it,
because PyTorch's vectorised and scalar loops differ in the gradient of NaN. Cases are left out in which PyTorch's
formula overflows although the result is finite (gelu_tanh's gradient and hardswish at the largest numbers) or has no
accurate digits (the gradient of softsign far from 0).
"""

import os
from collections import OrderedDict

from common import DTYPES, HERE, write_or_check

import torch
from torch.nn import functional as F

PATH = os.path.join(HERE, "extremes.safetensors")
INF, NAN = float("inf"), float("nan")

ACTIVATIONS = {
    "relu": F.relu, "tanh": torch.tanh, "sigmoid": torch.sigmoid, "gelu": F.gelu,
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"), "silu": F.silu, "leaky_relu": F.leaky_relu,
    "elu": F.elu, "celu": lambda x: F.celu(x, 0.5), "selu": F.selu, "softplus": F.softplus,
    "log_sigmoid": F.logsigmoid, "hardtanh": F.hardtanh, "relu6": F.relu6,
    # In the backward of double, PyTorch 1.13 itself uses 1/6 rounded to float.
    "hard_sigmoid": lambda x: F.hardsigmoid(x) if x.dtype == torch.float32 else F.relu6(x + 3) / 6,
    "hardswish": F.hardswish, "mish": F.mish, "softsign": F.softsign,
}


def numbers(name, dtype):
    info = torch.finfo(dtype)
    far = 90.0 if dtype == torch.float32 else 720.0
    largest = [] if name in ("gelu_tanh", "hardswish") else [info.max, -info.max]
    middle = 3.5 if name == "softsign" else 1e4
    return largest + [NAN, INF, -INF, middle, -middle, far, -far, info.tiny, -info.tiny, info.tiny / 8,
                      -info.tiny / 8, 0.0, -0.0]


def activate(f, number, count, dtype):
    x = torch.full([count], number, dtype=dtype, requires_grad=True)
    y = f(x)
    y.backward(torch.full([count], 1.5, dtype=dtype))
    return y.detach()[:1], x.grad[:1]


def record_activations(tensors, prefix, dtype):
    for name, f in ACTIVATIONS.items():
        x = numbers(name, dtype)
        tensors[f"{prefix}/{name}/x"] = torch.tensor(x, dtype=dtype)
        alone, among = ([activate(f, v, count, dtype) for v in x] for count in (1, 64))
        tensors[f"{prefix}/{name}/y"] = torch.cat([y for y, _ in alone])
        tensors[f"{prefix}/{name}/gx"] = torch.cat([g for _, g in alone])
        tensors[f"{prefix}/{name}/gx_among"] = torch.cat([g for _, g in among])


def record_norms(tensors, prefix, dtype):
    """Rows of eight (in two groups) with a number whose square overflows, and with an infinity."""
    far = 1e30 if dtype == torch.float32 else 1e200
    for name, value in {"far": far, "infinity": INF}.items():
        x = torch.arange(16, dtype=dtype).reshape(2, 8)
        x[0, 2] = value
        tensors[f"{prefix}/norm_{name}/x"] = x
        x = x.clone().requires_grad_()
        y = F.layer_norm(x, [8])
        y.backward(torch.ones_like(y))
        tensors[f"{prefix}/norm_{name}/y"], tensors[f"{prefix}/norm_{name}/gx"] = y.detach(), x.grad
        tensors[f"{prefix}/norm_{name}/grouped"] = F.group_norm(x.detach().reshape(1, 2, 8), 2)


def record_losses(tensors, prefix, dtype):
    """Cross entropy of pixels (1, 3, 2) with an extreme logit of another class."""
    largest = float(torch.finfo(dtype).max)
    for name, value in {"minus_infinity": -INF, "least": -largest, "most": largest}.items():
        for smoothing in (0.0, 0.1):
            x = torch.tensor([[[0.5, 2.0], [value, 1.0], [1.5, -1.0]]], dtype=dtype)
            case = f"{prefix}/cross_entropy_{name}_{smoothing}"
            tensors[f"{case}/x"] = x
            x = x.clone().requires_grad_()
            loss = F.cross_entropy(x, torch.tensor([[2, 0]]), label_smoothing=smoothing)
            loss.backward()
            tensors[f"{case}/loss"], tensors[f"{case}/gx"] = loss.detach().reshape(1), x.grad


def main():
    tensors = OrderedDict()
    for prefix, dtype in DTYPES.items():
        record_activations(tensors, prefix, dtype)
        record_norms(tensors, prefix, dtype)
        record_losses(tensors, prefix, dtype)
    write_or_check(PATH, tensors, "extremes")


if __name__ == "__main__":
    main()
