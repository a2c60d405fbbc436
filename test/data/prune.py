"""Records what PyTorch prunes of a linear module, and how it trains then.

    /usr/bin/python3 test/data/prune.py           write prune.safetensors
    /usr/bin/python3 test/data/prune.py --check   recompute its outputs
"""

import os
from collections import OrderedDict

from common import HERE, uniform, write_or_check

import torch
from torch import nn
from torch.nn.utils import prune

PATH = os.path.join(HERE, "prune.safetensors")

CASES = {
    "l1": lambda m: prune.l1_unstructured(m, "weight", 0.3),
    "l1_count": lambda m: prune.l1_unstructured(m, "weight", 5),
    "l1_twice": lambda m: (prune.l1_unstructured(m, "weight", 0.3), prune.l1_unstructured(m, "weight", 0.5)),
    "l2_rows": lambda m: prune.ln_structured(m, "weight", 0.5, n=2, dim=0),
    "l1_columns": lambda m: prune.ln_structured(m, "weight", 2, n=1, dim=-1),
    "max_columns_then_l1": lambda m: (prune.ln_structured(m, "weight", 1, n=float("inf"), dim=1),
                                      prune.l1_unstructured(m, "weight", 0.25)),
    "global": lambda m: prune.global_unstructured([(m, "weight"), (m, "bias")], prune.L1Unstructured, amount=0.4),
}


def record():
    tensors = OrderedDict()
    weight, bias = uniform("prune weight", [5, 7], torch.float64), uniform("prune bias", [5], torch.float64)
    x, t = uniform("prune x", [4, 7], torch.float64), uniform("prune t", [4, 5], torch.float64)
    tensors["weight"], tensors["bias"], tensors["x"], tensors["t"] = weight, bias, x, t
    for name, make in CASES.items():
        m = nn.Linear(7, 5).double()
        m.weight.data, m.bias.data = weight.clone(), bias.clone()
        make(m)
        tensors[f"{name}/pruned"] = m.weight.detach().clone()
        optimizer = torch.optim.SGD(m.parameters(), lr=0.2)
        for _ in range(4):
            optimizer.zero_grad()
            nn.functional.mse_loss(m(x), t).backward()
            optimizer.step()
        m(x)
        tensors[f"{name}/trained"] = m.weight.detach().clone()
        tensors[f"{name}/trained_bias"] = m.bias.detach().clone()
    return tensors


if __name__ == "__main__":
    write_or_check(PATH, record(), "prune")
