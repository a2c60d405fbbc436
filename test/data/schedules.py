"""Records the learning rates and momenta of PyTorch's schedules over 200 steps.

    /usr/bin/python3 test/data/schedules.py           write schedules.safetensors
    /usr/bin/python3 test/data/schedules.py --check   recompute its outputs
"""

import math
import os
import warnings
from collections import OrderedDict

from common import HERE, write_or_check

import torch
import torch.optim.lr_scheduler as s
from torch.optim.swa_utils import SWALR

PATH = os.path.join(HERE, "schedules.safetensors")
STEPS, LR = 200, 0.5

SCHEDULES = {
    "lambda_lr": lambda o: s.LambdaLR(o, lambda n: 1 / math.sqrt(1.0 + n)),
    "multiplicative_lr": lambda o: s.MultiplicativeLR(o, lambda n: 0.99 if n % 3 else 0.95),
    "step_lr": lambda o: s.StepLR(o, 30, 0.5),
    "multi_step_lr": lambda o: s.MultiStepLR(o, [20, 75, 75, 150], 0.3),
    "constant_lr": lambda o: s.ConstantLR(o, 0.25, 17),
    "linear_lr": lambda o: s.LinearLR(o, 0.1, 0.8, 40),
    "exponential_lr": lambda o: s.ExponentialLR(o, 0.98),
    "polynomial_lr": lambda o: s.PolynomialLR(o, 150, 1.7),
    "cosine_annealing_lr": lambda o: s.CosineAnnealingLR(o, 60, 0.01),
    "warm_restarts": lambda o: s.CosineAnnealingWarmRestarts(o, 9, 2, 0.02),
    "warm_restarts_equal": lambda o: s.CosineAnnealingWarmRestarts(o, 25),
    "sequential_lr": lambda o: s.SequentialLR(
        o, [s.LinearLR(o, 0.1, 1.0, 20), s.CosineAnnealingLR(o, 80, 0.01),
            s.ExponentialLR(o, 0.9)], [20, 100]),
    "chained_lr": lambda o: s.ChainedScheduler([s.ConstantLR(o, 0.1, 12), s.ExponentialLR(o, 0.97)]),
    "cyclic_triangular": lambda o: s.CyclicLR(o, 0.01, 0.3, 21),
    "cyclic_triangular2": lambda o: s.CyclicLR(o, 0.01, 0.3, 21, 34, "triangular2"),
    "cyclic_exp_range": lambda o: s.CyclicLR(o, 0.01, 0.3, 10, 5, "exp_range", 0.99,
                                             base_momentum=0.7, max_momentum=0.95),
    "swa_lr": lambda o: SWALR(o, 0.05),
    "swa_lr_linear": lambda o: SWALR(o, 0.8, 37, "linear"),
    "swa_lr_at_once": lambda o: SWALR(o, 0.05, 0),
    "one_cycle": lambda o: s.OneCycleLR(o, 0.4, STEPS),
    "one_cycle_linear": lambda o: s.OneCycleLR(o, 0.4, epochs=10, steps_per_epoch=20,
                                               anneal_strategy="linear", pct_start=0.1),
    "one_cycle_three": lambda o: s.OneCycleLR(o, 0.4, STEPS, three_phase=True, div_factor=10,
                                              final_div_factor=100, base_momentum=0.8),
}
PLATEAUS = {
    "plateau": dict(factor=0.5, patience=3),
    "plateau_max": dict(mode="max", factor=0.3, patience=2, threshold=0.01, cooldown=4),
    "plateau_abs": dict(factor=0.2, patience=1, threshold=0.02, threshold_mode="abs", min_lr=1e-3),
}


def optimizer(beta):
    p = torch.nn.Parameter(torch.zeros(1))
    return (torch.optim.Adam([p], lr=LR, betas=(0.9, 0.99)) if beta else
            torch.optim.SGD([p], lr=LR, momentum=0.9))


def metric(n):
    """Falls, with waves, and is NaN once."""
    return math.nan if n == 50 else math.exp(-n / 40) + 0.1 * math.sin(n / 3)


def run(make, beta, arguments):
    o = optimizer(beta)
    schedule = make(o)
    rows = []
    for n in range(STEPS):
        group = o.param_groups[0]
        rows.append([group["lr"], group["betas"][0] if beta else group["momentum"]])
        schedule.step(*arguments(n))
    return torch.tensor(rows, dtype=torch.float64)


def record():
    warnings.simplefilter("ignore")
    tensors = OrderedDict()
    for name, make in SCHEDULES.items():
        # This version of CyclicLR does not cycle the betas of Adam.
        for kind in ("sgd", "adam") if name.startswith("one_cycle") else ("sgd",):
            tensors[f"{name}/{kind}"] = run(make, kind == "adam", lambda n: ())
    tensors["metric"] = torch.tensor([metric(n) for n in range(STEPS)], dtype=torch.float64)
    for name, options in PLATEAUS.items():
        tensors[name] = run(lambda o: s.ReduceLROnPlateau(o, **options), False,
                            lambda n: (metric(n),))
    return tensors


def main():
    write_or_check(PATH, record(), "schedules")


if __name__ == "__main__":
    main()
