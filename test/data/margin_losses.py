"""Records values and gradients of PyTorch's losses for several classes by margins.

    /usr/bin/python3 test/data/margin_losses.py           write margin_losses.safetensors
    /usr/bin/python3 test/data/margin_losses.py --check   recompute its outputs
"""

import os
from collections import OrderedDict

from common import DTYPES, HERE, uniform, write_or_check

import torch
from torch import nn

PATH = os.path.join(HERE, "margin_losses.safetensors")
N, C = 9, 7

LABELS = torch.tensor([3, 0, 6, 6, 2, 1, 5, 4, 0])
# The labels of each sample, up to the first -1.
SETS = torch.tensor([[3, 0, -1, 1, 2, 5, 6], [-1] * 7, [0, 1, 2, 3, 4, 5, 6], [6, -1, -1, -1, -1, -1, -1],
                     [2, 4, 6, -1, 0, 0, 0], [1, 0, -1, 4, 4, 4, 4], [5, 4, 3, 2, 1, -1, -1],
                     [4, -1, 4, 4, 4, 4, 4], [0, 6, -1, 1, 1, 1, 1]])

WEIGHTS = [0.5, 1.0, 2.0, 0.25, 1.5, 0.0, 3.0]


class Weighted(nn.Module):
    def __init__(self, loss, **options):
        super().__init__()
        self.loss, self.options = loss, options

    def forward(self, x, target):
        return self.loss(weight=x.new_tensor(WEIGHTS), **self.options)(x, target)


LOSSES = {
    "multi_margin": (lambda r: nn.MultiMarginLoss(reduction=r), LABELS),
    "multi_margin_squared": (lambda r: nn.MultiMarginLoss(p=2, margin=0.7, reduction=r), LABELS),
    "multilabel_margin": (lambda r: nn.MultiLabelMarginLoss(reduction=r), SETS),
    "multilabel_soft_margin": (lambda r: nn.MultiLabelSoftMarginLoss(reduction=r), None),
    "multi_margin_weight": (lambda r: Weighted(nn.MultiMarginLoss, p=2, reduction=r), LABELS),
    "multilabel_soft_margin_weight": (lambda r: Weighted(nn.MultiLabelSoftMarginLoss, reduction=r), None),
}


def record():
    tensors = OrderedDict()
    for name, dtype in DTYPES.items():
        x = uniform("margin losses", [N, C], dtype) * 2
        shares = uniform("margin losses targets", [N, C], dtype).abs()
        tensors[f"{name}/x"], tensors[f"{name}/shares"] = x, shares
        for case, (make, target) in LOSSES.items():
            target = shares if target is None else target
            # A batch, and one sample.
            for of, rows, want in (("", x, target), ("_one", x[0], target[0])):
                for reduction in ("mean", "sum"):
                    p = rows.clone().requires_grad_()
                    loss = make(reduction)(p, want)
                    loss.backward()
                    tensors[f"{name}/{case}{of}_{reduction}"] = loss.detach().reshape(1)
                    tensors[f"{name}/{case}{of}_{reduction}/gradient"] = p.grad
    tensors["labels"], tensors["sets"] = LABELS, SETS
    return tensors


def main():
    write_or_check(PATH, record(), "margin_losses")


if __name__ == "__main__":
    main()
