"""Records parameters after 1, 5 and 20 steps of PyTorch's optimizers.

    /usr/bin/python3 test/data/optimizers.py           write optimizers.safetensors
    /usr/bin/python3 test/data/optimizers.py --check   recompute its outputs
"""

import os
from collections import OrderedDict

from common import DTYPES, HERE, uniform, write_or_check

import torch
from torch.optim import ASGD, Adadelta, Adagrad, Adamax, NAdam, RAdam, RMSprop, Rprop

PATH = os.path.join(HERE, "optimizers.safetensors")
N, STEPS, KEPT = 37, 20, (1, 5, 20)

OPTIMIZERS = {
    "rmsprop": lambda p: RMSprop(p),
    "rmsprop_momentum": lambda p: RMSprop(p, lr=0.02, alpha=0.9, eps=1e-3, weight_decay=0.1,
                                          momentum=0.9, maximize=True),
    "rmsprop_centered": lambda p: RMSprop(p, lr=0.02, centered=True, momentum=0.5),
    "adagrad": lambda p: Adagrad(p),
    "adagrad_decay": lambda p: Adagrad(p, lr=0.1, lr_decay=0.1, weight_decay=0.1,
                                       initial_accumulator_value=0.5, eps=1e-3, maximize=True),
    "adadelta": lambda p: Adadelta(p),
    "adadelta_decay": lambda p: Adadelta(p, lr=0.5, rho=0.8, eps=1e-3, weight_decay=0.1,
                                         maximize=True),
    "adamax": lambda p: Adamax(p),
    "adamax_decay": lambda p: Adamax(p, lr=0.05, betas=(0.5, 0.9), eps=1e-3, weight_decay=0.1,
                                     maximize=True),
    "nadam": lambda p: NAdam(p, foreach=True),
    "nadam_decay": lambda p: NAdam(p, lr=0.05, betas=(0.7, 0.9), eps=1e-3, weight_decay=0.1,
                                   momentum_decay=0.1, foreach=True),
    "radam": lambda p: RAdam(p),
    "radam_decay": lambda p: RAdam(p, lr=0.05, betas=(0.7, 0.99), eps=1e-3, weight_decay=0.1),
    "asgd": lambda p: ASGD(p),
    "asgd_average": lambda p: ASGD(p, lr=0.1, lambd=0.1, alpha=0.5, t0=3, weight_decay=0.1,
                                   maximize=True),
    "rprop": lambda p: Rprop(p),
    "rprop_limits": lambda p: Rprop(p, lr=0.1, etas=(0.3, 1.7), step_sizes=(0.02, 0.15),
                                    maximize=True),
}


def record():
    tensors = OrderedDict()
    for name, dtype in DTYPES.items():
        start = uniform("optimizer parameters", [N], dtype)
        # Some gradients are 0.
        gradients = uniform("optimizer gradients", [STEPS, N], dtype)
        gradients[:, ::9] = 0
        tensors[f"{name}/parameters"], tensors[f"{name}/gradients"] = start, gradients
        for case, make in OPTIMIZERS.items():
            p = torch.nn.Parameter(start.clone())
            optimizer, rows = make([p]), []
            for step in range(STEPS):
                p.grad = gradients[step].clone()
                optimizer.step()
                if step + 1 in KEPT:
                    rows.append(p.detach().clone())
            tensors[f"{name}/{case}"] = torch.stack(rows)
            if case == "asgd_average":
                tensors[f"{name}/{case}/ax"] = optimizer.state[p]["ax"]
    return tensors


def main():
    write_or_check(PATH, record(), "optimizers")


if __name__ == "__main__":
    main()
