"""LP pooling. In three dimensions, which PyTorch 1.13 lacks, by the formula of torch.nn.functional.lp_pool2d."""

from collections import OrderedDict

import torch
from torch import nn
from torch.nn import functional as F

from layers import Case, values


def lp_pool3d(x, p, kernel, stride, ceil_mode):
    out = F.avg_pool3d(x.pow(p), kernel, stride, 0, ceil_mode)
    return (torch.sign(out) * F.relu(torch.abs(out))).mul(kernel ** 3).pow(1 / p)


def cases():
    c = OrderedDict()
    c["lp_pool1d"] = Case(lambda: nn.LPPool1d(2, 3), [[2, 3, 11]], options="norm_type 2, kernel 3")
    c["lp_pool1d_one"] = Case(lambda: nn.LPPool1d(1, 2, 1), [[3, 23]], options="norm_type 1, kernel 2, stride 1")
    c["lp_pool2d"] = Case(lambda: nn.LPPool2d(2, 3, 2), [[2, 3, 7, 9]], options="norm_type 2, kernel 3, stride 2")
    c["lp_pool2d_ceil_mode"] = Case(lambda: nn.LPPool2d(3, (2, 3), (3, 2), True), [values([2, 2, 9, 8], 0.1, 2)],
                                    options="norm_type 3, kernel 2, 3, stride 3, 2, ceil_mode")
    c["lp_pool2d_fraction"] = Case(lambda: nn.LPPool2d(1.5, 2), [values([1, 2, 4, 37], 0.1, 2)],
                                   options="norm_type 1.5, kernel 2")
    c["lp_pool3d"] = Case(nn.Identity, [[2, 2, 4, 5, 6]], call=lambda m, x: lp_pool3d(x, 2, 2, 2, True),
                          options="norm_type 2, kernel 2, ceil_mode")
    return c
