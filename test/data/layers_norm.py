"""Normalization: batch, instance, layer, group, root mean square, weight and spectral norm."""

from collections import OrderedDict
from functools import partial

import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.utils import spectral_norm, weight_norm
from torch.nn.utils.parametrizations import orthogonal

from layers import Case


class RMSNorm(nn.Module):
    """torch.nn.RMSNorm as of PyTorch 2.4, written out."""

    def __init__(self, *shape, eps=None, elementwise_affine=True):
        super().__init__()
        self.dims, self.eps = tuple(range(-len(shape), 0)), eps
        self.weight = nn.Parameter(torch.ones(shape)) if elementwise_affine else None

    def forward(self, x):
        eps = torch.finfo(x.dtype).eps if self.eps is None else self.eps
        y = x * torch.rsqrt(x.pow(2).mean(self.dims, keepdim=True) + eps)
        return y if self.weight is None else y * self.weight


class LayerNormWithoutBias(nn.Module):
    """LayerNorm(..., bias=False) as of PyTorch 2.1."""

    def __init__(self, *shape):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(shape))

    def forward(self, x):
        return F.layer_norm(x, self.weight.shape, self.weight)


def cases():
    c = OrderedDict()

    def add(name, build, x, training=True):
        c[name] = Case(build, [x], training=training, options=options_of(build()))

    def pair(name, build, x):
        add(name + "_train", build, x)
        add(name + "_eval", build, x, training=False)

    pair("batch_norm1d_2d", lambda: nn.BatchNorm1d(5), [7, 5])
    pair("batch_norm1d_3d", lambda: nn.BatchNorm1d(3), [2, 3, 11])
    add("batch_norm1d_options",
        lambda: nn.BatchNorm1d(3, eps=1e-3, momentum=0.3, affine=False), [5, 3])
    add("batch_norm1d_cumulative", lambda: nn.BatchNorm1d(3, momentum=None), [5, 3, 2])
    pair("batch_norm1d_no_tracking",
         lambda: nn.BatchNorm1d(3, track_running_stats=False), [5, 3, 7])
    pair("batch_norm3d", lambda: nn.BatchNorm3d(3), [2, 3, 2, 3, 5])

    for n, spatial in ((1, [11]), (2, [3, 5]), (3, [2, 3, 5])):
        norm = {1: nn.InstanceNorm1d, 2: nn.InstanceNorm2d, 3: nn.InstanceNorm3d}[n]
        name = f"instance_norm{n}d"
        add(name, partial(norm, 3), [2, 3] + spatial)
        add(name + "_unbatched", partial(norm, 3, affine=True), [3] + spatial)
        pair(name + "_affine_tracking",
             partial(norm, 3, affine=True, track_running_stats=True), [4, 3] + spatial)
    add("instance_norm1d_default_eval", lambda: nn.InstanceNorm1d(3), [2, 3, 19], training=False)
    pair("instance_norm1d_tracking_unbatched",
         lambda: nn.InstanceNorm1d(5, track_running_stats=True), [5, 7])
    add("instance_norm2d_options", lambda: nn.InstanceNorm2d(
        5, eps=1e-2, momentum=0.4, track_running_stats=True), [2, 5, 3, 3])

    add("layer_norm", lambda: nn.LayerNorm(5), [7, 5])
    add("layer_norm_1d", lambda: nn.LayerNorm(13), [13])
    add("layer_norm_wide", lambda: nn.LayerNorm(83), [3, 83])
    add("layer_norm_many_rows", lambda: nn.LayerNorm(11), [37, 11])
    add("layer_norm_two", lambda: nn.LayerNorm([5, 7]), [3, 2, 5, 7])
    add("layer_norm_eps", lambda: nn.LayerNorm(5, eps=1e-2), [2, 3, 5])
    add("layer_norm_no_affine", lambda: nn.LayerNorm(17, elementwise_affine=False), [3, 17])
    add("layer_norm_no_bias", lambda: LayerNormWithoutBias(11), [2, 3, 11])

    add("group_norm", lambda: nn.GroupNorm(2, 6), [3, 6, 5, 3])
    add("group_norm_one", lambda: nn.GroupNorm(1, 5), [2, 5, 7])
    add("group_norm_each", lambda: nn.GroupNorm(3, 3), [2, 3, 19])
    add("group_norm_flat", lambda: nn.GroupNorm(3, 12), [5, 12])
    add("group_norm_no_affine", lambda: nn.GroupNorm(2, 4, affine=False), [2, 4, 3, 3])
    add("group_norm_eps", lambda: nn.GroupNorm(2, 10, eps=1e-2), [2, 10, 2, 3, 2])

    add("rms_norm", lambda: RMSNorm(5), [7, 5])
    add("rms_norm_two", lambda: RMSNorm(5, 7), [3, 2, 5, 7])
    add("rms_norm_eps", lambda: RMSNorm(19, eps=1e-2), [2, 3, 19])
    add("rms_norm_no_affine", lambda: RMSNorm(11, elementwise_affine=False), [3, 11])

    add("weight_norm_linear", lambda: weight_norm(nn.Linear(5, 7)), [3, 5])
    add("weight_norm_linear_no_bias", lambda: weight_norm(nn.Linear(19, 3, bias=False)), [2, 19])
    add("weight_norm_linear_dim1", lambda: weight_norm(nn.Linear(5, 7), dim=1), [3, 5])
    add("weight_norm_linear_whole", lambda: weight_norm(nn.Linear(5, 7), dim=None), [3, 5])
    add("weight_norm_linear_bias",
        lambda: weight_norm(nn.Linear(5, 7), name="bias", dim=None), [3, 5])
    add("weight_norm_linear_both",
        lambda: weight_norm(weight_norm(nn.Linear(5, 7)), name="bias", dim=None), [3, 5])
    add("weight_norm_conv2d", lambda: weight_norm(nn.Conv2d(3, 5, 3)), [2, 3, 7, 5])
    add("weight_norm_conv2d_dim1", lambda: weight_norm(nn.Conv2d(3, 5, 3), dim=1), [2, 3, 7, 5])
    add("weight_norm_batch_norm2d", lambda: weight_norm(nn.BatchNorm2d(3), dim=None),
        [2, 3, 3, 5])

    def plain(m):
        return orthogonal(m, orthogonal_map="householder", use_trivialization=False)

    def householder(m):
        return orthogonal(m, orthogonal_map="householder")

    add("orthogonal_tall", lambda: plain(nn.Linear(3, 7)), [2, 3])
    add("orthogonal_wide", lambda: plain(nn.Linear(7, 3, bias=False)), [2, 7])
    add("orthogonal_conv2d", lambda: plain(nn.Conv2d(2, 3, (2, 3))), [1, 2, 5, 4])
    add("orthogonal_base", lambda: householder(nn.Linear(5, 5)), [3, 5])
    add("orthogonal_base_tall", lambda: householder(nn.Linear(3, 6)), [3, 3])
    add("orthogonal_base_wide", lambda: householder(nn.Linear(6, 2)), [3, 6])
    pair("spectral_norm_linear", lambda: spectral_norm(nn.Linear(5, 7)), [3, 5])
    add("spectral_norm_linear_dim1", lambda: spectral_norm(nn.Linear(19, 3), dim=1), [2, 19])
    add("spectral_norm_linear_3_iterations",
        lambda: spectral_norm(nn.Linear(5, 7, bias=False), n_power_iterations=3, eps=1e-3), [3, 5])
    pair("spectral_norm_conv2d", lambda: spectral_norm(nn.Conv2d(3, 5, 3)), [2, 3, 7, 5])
    add("spectral_norm_conv_transpose1d", lambda: spectral_norm(nn.ConvTranspose1d(3, 5, 4)),
        [2, 3, 7])
    return c


def options_of(module):
    extra = module.extra_repr()
    return f"{type(module).__name__}({extra})"
