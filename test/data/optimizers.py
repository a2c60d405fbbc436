"""Records parameters after 1, 5 and 20 steps of PyTorch's optimizers, and after 20 steps in groups.

    /usr/bin/python3 test/data/optimizers.py           write optimizers.safetensors
    /usr/bin/python3 test/data/optimizers.py --check   recompute its outputs
"""

import os
from collections import OrderedDict

from common import DTYPES, HERE, uniform, write_or_check

import torch
from torch.optim import (ASGD, LBFGS, SGD, Adadelta, Adagrad, Adam, Adamax, AdamW, NAdam, RAdam,
                         RMSprop, Rprop)
from torch.optim.lr_scheduler import CosineAnnealingLR, StepLR

PATH = os.path.join(HERE, "optimizers.safetensors")
N, STEPS, KEPT = 37, 20, (1, 5, 20)

OPTIMIZERS = {
    "sgd": lambda p: SGD(p, lr=0.1),
    "sgd_dampened": lambda p: SGD(p, lr=0.05, momentum=0.9, dampening=0.2, weight_decay=0.1,
                                  maximize=True),
    "sgd_nesterov": lambda p: SGD(p, lr=0.05, momentum=0.9, nesterov=True),
    "adam": lambda p: Adam(p),
    "adam_amsgrad": lambda p: Adam(p, lr=0.05, betas=(0.5, 0.9), eps=1e-3, weight_decay=0.1,
                                   amsgrad=True, maximize=True),
    "adamw": lambda p: AdamW(p),
    "adamw_amsgrad": lambda p: AdamW(p, lr=0.05, betas=(0.5, 0.9), eps=1e-3, weight_decay=0.1,
                                     amsgrad=True, maximize=True),
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


LBFGS_CASES = {
    "lbfgs": dict(lr=0.5, max_iter=2, history_size=4),
    "lbfgs_wolfe": dict(max_iter=2, history_size=4, line_search_fn="strong_wolfe"),
    "lbfgs_long": dict(lr=20, max_iter=3, line_search_fn="strong_wolfe"),
}


def curved(p):
    """A function without symmetry and far from quadratic."""
    i = torch.arange(N)
    a, b = 1 + i / 4, ((i * 7) % 11) / 8 - 0.5
    return ((a * (p - b) ** 2 / 2).sum() + (p ** 4).sum() / 8 +
            ((p[1:] - p[:-1]) ** 2).sum() / 4 + 2 * (1 - torch.cos(3 * p)).sum())


def record_lbfgs(tensors, name, start):
    for case, options in LBFGS_CASES.items():
        p = torch.nn.Parameter(start.clone() * 3)
        optimizer, rows = LBFGS([p], **options), []

        def closure():
            optimizer.zero_grad()
            loss = curved(p)
            loss.backward()
            return loss

        for step in range(STEPS):
            optimizer.step(closure)
            if step + 1 in KEPT:
                rows.append(p.detach().clone())
        tensors[f"{name}/{case}"] = torch.stack(rows)
        tensors[f"{name}/{case}/func_evals"] = torch.tensor([optimizer.state[p]["func_evals"]])


# fc.weight, fc.bias, head.weight, head.bias of a network, in groups, with a schedule.
SHAPES = [[4, 3], [4], [5, 4], [5]]


def adamw_in_groups(w, b, hw, hb):
    optimizer = AdamW([{"params": [w]}, {"params": [b], "weight_decay": 0},
                       {"params": [hw], "lr": 3e-2, "betas": (0.5, 0.9)},
                       {"params": [hb], "lr": 3e-2, "betas": (0.5, 0.9), "weight_decay": 0}],
                      lr=1e-2, betas=(0.9, 0.95), weight_decay=0.1)
    return optimizer, CosineAnnealingLR(optimizer, T_max=15)


def sgd_in_groups(w, b, hw, hb):
    optimizer = SGD([{"params": [w]}, {"params": [b], "momentum": 0.9, "nesterov": True},
                     {"params": [hw, hb], "lr": 0.02, "weight_decay": 0.1}], lr=0.1)
    return optimizer, StepLR(optimizer, step_size=7)


def rprop_in_groups(w, b, hw, hb):
    optimizer = Rprop([{"params": [w, b]}, {"params": [hw, hb], "lr": 0.03, "etas": (0.3, 1.7)}])
    return optimizer, StepLR(optimizer, step_size=7)


IN_GROUPS = {"adamw": adamw_in_groups, "sgd": sgd_in_groups, "rprop": rprop_in_groups}


def record_groups(tensors, name, dtype):
    sizes = [torch.Size(s).numel() for s in SHAPES]
    start = uniform("parameters in groups", [sum(sizes)], dtype)
    gradients = uniform("gradients in groups", [STEPS, sum(sizes)], dtype)
    tensors[f"{name}/groups/parameters"] = start
    tensors[f"{name}/groups/gradients"] = gradients
    for case, make in IN_GROUPS.items():
        parameters = [torch.nn.Parameter(p.clone().reshape(s))
                      for p, s in zip(start.split(sizes), SHAPES)]
        optimizer, schedule = make(*parameters)
        for step in range(STEPS):
            for p, g, s in zip(parameters, gradients[step].split(sizes), SHAPES):
                p.grad = g.clone().reshape(s)
            optimizer.step()
            schedule.step()
        tensors[f"{name}/groups/{case}"] = torch.cat([p.detach().flatten() for p in parameters])


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
        record_groups(tensors, name, dtype)
        record_lbfgs(tensors, name, start)
    return tensors


def main():
    write_or_check(PATH, record(), "optimizers")


if __name__ == "__main__":
    main()
