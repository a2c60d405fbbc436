"""Modules that PyTorch 1.13 has no class for, or none with a derivative, written with its operations; and modules that
are random in training, in evaluation and, as <module>_random, in training."""

import math
from collections import OrderedDict

import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.utils import fusion, parametrize

from layers import Case, constant, values


class Module(nn.Module):
    """A module of a function, with parameters and buffers of these extents."""

    def __init__(self, f, parameters=(), buffers=()):
        super().__init__()
        self.f = f
        for name, extents in dict(parameters).items():
            self.register_parameter(name, nn.Parameter(torch.zeros(extents)))
        for name, extents in dict(buffers).items():
            self.register_buffer(name, torch.zeros(extents))

    def forward(self, *xs):
        return self.f(self, *xs)


def channel_shuffle(groups, x):
    """nn.ChannelShuffle, whose derivative 1.13 does not implement."""
    y = x.reshape(x.shape[0], groups, -1, *x.shape[2:]).transpose(1, 2).reshape(x.shape)
    assert torch.equal(y, nn.ChannelShuffle(groups)(x))
    return y


def rotary_positions(heads, base, x):
    """Su et al., RoFormer, 2021: features 2 i and 2 i + 1 of a head are a complex number, times exp(i l base^(-2 i / d))."""
    batch, length, width = x.shape
    d = width // heads
    angles = torch.arange(length, dtype=torch.float64)[:, None] * base ** (-torch.arange(0, d, 2, dtype=torch.float64) / d)
    turns = torch.polar(torch.ones_like(angles), angles)[:, None, :].to(torch.complex(x, x).dtype)
    pairs = torch.view_as_complex(x.reshape(batch, length, heads, d // 2, 2))
    return torch.view_as_real(pairs * turns).reshape(x.shape)


def causal_attention(heads, q, k, v):
    """scaled_dot_product_attention(.., is_causal=True) of each head, as F.multi_head_attention_forward computes it."""
    batch, length, width = q.shape
    q, k, v = (x.reshape(batch, length, heads, width // heads).transpose(1, 2) for x in (q, k, v))
    mask = torch.full((length, length), -math.inf, dtype=q.dtype).triu(1)
    weights = torch.softmax(q @ k.transpose(-2, -1) / math.sqrt(width // heads) + mask, -1)
    return (weights @ v).transpose(1, 2).reshape(batch, length, width)


def causal_conv1d(in_channels, out_channels, kernel, stride=1, dilation=1, groups=1, bias=True):
    parameters = {"weight": [out_channels, in_channels // groups, kernel]}
    if bias:
        parameters["bias"] = [out_channels]
    return Module(lambda m, x: F.conv1d(F.pad(x, (dilation * (kernel - 1), 0)), m.weight, m.bias if bias else None, stride,
                                        0, dilation, groups), parameters)


class Symmetric(nn.Module):
    def forward(self, x):
        return x.triu() + x.triu(1).mT


class Positive(nn.Module):
    def __init__(self, scale):
        super().__init__()
        self.scale = scale

    def forward(self, x):
        return torch.exp(self.scale * x)


def parametrized(module, name, parametrization):
    parametrize.register_parametrization(module, name, parametrization)
    return module


def cases():
    c = OrderedDict()

    def add(name, make, *xs, training=True, options=""):
        c[name] = Case(make, list(xs), training, options=options or str(make()))

    for groups, x in ((2, [1, 6, 2]), (3, [2, 6, 2, 3]), (5, [2, 5, 3])):
        add(f"channel_shuffle_{groups}", lambda groups=groups: Module(lambda m, x: channel_shuffle(groups, x)), x,
            options=f"groups={groups}")
    add("unflatten", lambda: nn.Unflatten(1, (2, 3)), [4, 6, 3])
    add("unflatten_last", lambda: nn.Unflatten(-1, (5, 1, 2)), [3, 10])
    for key, x in (("", [2, 5, 8]), ("_batch", [3, 4, 12]), ("_base", [1, 7, 4])):
        heads, base = (2, 10000.0) if key != "_base" else (1, 100.0)
        add("rotary_positions" + key, lambda heads=heads, base=base: Module(lambda m, x: rotary_positions(heads, base, x)), x,
            options=f"heads={heads}, base={base}")
    for heads, x in ((1, [2, 5, 3]), (3, [2, 7, 12]), (2, [1, 1, 4])):
        add(f"causal_attention_{heads}", lambda heads=heads: Module(lambda m, *xs: causal_attention(heads, *xs)), x, x, x,
            options=f"heads={heads}")
    for key, x, options in (("", [2, 3, 9], dict(in_channels=3, out_channels=4, kernel=3)),
                            ("_groups", [2, 4, 17], dict(in_channels=4, out_channels=6, kernel=2, dilation=5, groups=2)),
                            ("_stride", [3, 8], dict(in_channels=3, out_channels=2, kernel=4, stride=3, bias=False)),
                            ("_long_kernel", [1, 1, 2], dict(in_channels=1, out_channels=1, kernel=7))):
        add("causal_conv1d" + key, lambda options=options: causal_conv1d(**options), x,
            options=", ".join(f"{k}={v}" for k, v in options.items()))
    add("standard_scaler", lambda: Module(lambda m, x: (x - m.mean) / m.deviation, (), {"mean": [5], "deviation": [5]}),
        [2, 3, 5], options="5")
    add("parametrized", lambda: parametrized(nn.Linear(4, 4), "weight", Symmetric()), [3, 4], options="4, 4, symmetric")
    add("parametrized_positive", lambda: parametrized(nn.Conv2d(2, 3, 2), "weight", Positive(0.5)), [2, 2, 3, 4],
        options="2, 3, 2, exp(0.5 x)")
    add("parametrized_bias", lambda: parametrized(nn.Linear(3, 2), "bias", Positive(1.0)), [5, 3], options="3, 2, exp(x)")
    add("fuse_linear_bn_weights", lambda: Module(lambda m, w, b, mean, var, g, s: fusion.fuse_linear_bn_weights(
        w, b, mean, var, 1e-3, g, s)), [3, 5], [3], [3], values([3], 0.5, 1.5), [3], [3], options="eps=1e-3")
    add("fuse_linear_bn_weights_none", lambda: Module(lambda m, w, mean, var: fusion.fuse_conv_bn_weights(
        w, None, mean, var, 1e-5, None, None)), [3, 5], [3], values([3], 0.5, 1.5), options="conv_b, bn_w, bn_b=None")
    for key, transpose, w in (("", False, [3, 2, 2, 3]), ("_transpose", True, [2, 3, 2])):
        add("fuse_conv_bn_weights" + key, lambda transpose=transpose: Module(
            lambda m, w, b, mean, var, g, s: fusion.fuse_conv_bn_weights(w, b, mean, var, 1e-5, g, s, transpose)),
            w, [3], [3], values([3], 0.5, 1.5), [3], [3], options=f"transpose={transpose}")

    x = constant([[[-1.5, -0.0, 0.0], [2.0, 1e-3, -30.0]], [[0.5, -0.25, 3.0], [-2.0, 4.0, -1.0]]])
    add("rrelu", nn.RReLU, x, training=False)
    add("rrelu_bounds", lambda: nn.RReLU(0.25, 0.75), [3, 7], training=False)
    add("rrelu_random", lambda: nn.RReLU(0.1, 0.4), values([200], -2, 2))
    for name, make in (("alpha_dropout", nn.AlphaDropout), ("feature_alpha_dropout", nn.FeatureAlphaDropout)):
        add(name, lambda make=make: make(0.3), [2, 3, 4], training=False)
        for p in (0.2, 0.5):
            add(f"{name}_random_{p}", lambda make=make, p=p: make(p), [5, 8, 3])
    return c
