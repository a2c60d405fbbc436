"""Records gradients clipped by PyTorch's clip_grad_norm_, and optimizer steps with them.

    /usr/bin/python3 test/data/clipping.py           write clipping.safetensors
    /usr/bin/python3 test/data/clipping.py --check   recompute its outputs
"""

import os
from collections import OrderedDict

from common import DTYPES, HERE, uniform, write_or_check

import torch

PATH = os.path.join(HERE, "clipping.safetensors")
SHAPES = [[7, 5], [11], [2, 3, 3]]
STEPS, MAX_NORM = 5, 3.0
NORM_TYPES = {"2": 2.0, "1": 1.0, "inf": float("inf")}
OPTIMIZERS = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, weight_decay=0.01),
    "adam": lambda p: torch.optim.Adam(p, lr=0.01, weight_decay=0.01),
    "adamw": lambda p: torch.optim.AdamW(p, lr=0.01, amsgrad=True),
}


def gradients(step, dtype):
    # From norms well below the limit to norms well above it.
    return [uniform(f"clipping gradient {step} {i}", s, dtype) * (0.05 * 3 ** step)
            for i, s in enumerate(SHAPES)]


def flat(tensors):
    return torch.cat([t.detach().reshape(-1) for t in tensors])


def run(dtype, norm_type, make):
    p = [torch.nn.Parameter(uniform(f"clipping parameter {i}", s, dtype))
         for i, s in enumerate(SHAPES)]
    optimizer, norms, clipped, after = make(p), [], [], []
    for step in range(STEPS):
        for parameter, g in zip(p, gradients(step, dtype)):
            parameter.grad = g
        norms.append(torch.nn.utils.clip_grad_norm_(p, MAX_NORM, norm_type).reshape(1))
        clipped.append(flat([parameter.grad for parameter in p]))
        optimizer.step()
        after.append(flat(p))
    return torch.cat(norms), torch.stack(clipped), torch.stack(after)


def record():
    tensors = OrderedDict()
    for name, dtype in DTYPES.items():
        tensors[f"{name}/parameters"] = flat(
            [uniform(f"clipping parameter {i}", s, dtype) for i, s in enumerate(SHAPES)])
        tensors[f"{name}/gradients"] = torch.stack(
            [flat(gradients(step, dtype)) for step in range(STEPS)])
        for norm, p in NORM_TYPES.items():
            for optimizer, make in OPTIMIZERS.items():
                case = f"{name}/{norm}/{optimizer}"
                (tensors[f"{name}/{norm}/norms"], tensors[f"{name}/{norm}/clipped"],
                 tensors[f"{case}"]) = run(dtype, p, make)
    return tensors


def main():
    write_or_check(PATH, record(), "clipping")


if __name__ == "__main__":
    main()
