"""Pooling over one, two and three dimensions."""

from collections import OrderedDict

from torch import nn

from layers import Case


def cases():
    c = OrderedDict()

    def add(name, make, x, options):
        c[name] = Case(make, [x], options=options)

    add("max_pool1d", lambda: nn.MaxPool1d(2), [2, 3, 7], "kernel 2")
    add("max_pool1d_overlap", lambda: nn.MaxPool1d(3, 2, 1), [2, 3, 11],
        "kernel 3, stride 2, padding 1")
    add("max_pool1d_ceil_mode_dilation",
        lambda: nn.MaxPool1d(3, 2, 1, dilation=2, ceil_mode=True), [2, 2, 10],
        "kernel 3, stride 2, padding 1, dilation 2, ceil_mode")
    add("max_pool1d_unbatched", lambda: nn.MaxPool1d(4, 3), [3, 23], "kernel 4, stride 3")
    add("max_pool2d_wide", lambda: nn.MaxPool2d(3, 2, 1), [1, 2, 5, 37],
        "kernel 3, stride 2, padding 1")
    add("max_pool3d", lambda: nn.MaxPool3d(2), [2, 2, 4, 5, 6], "kernel 2")
    add("max_pool3d_everything",
        lambda: nn.MaxPool3d((2, 3, 2), (1, 2, 3), (1, 1, 0), (2, 1, 3), ceil_mode=True),
        [1, 2, 4, 5, 7],
        "kernel 2, 3, 2, stride 1, 2, 3, padding 1, 1, 0, dilation 2, 1, 3, ceil_mode")
    add("max_pool3d_unbatched", lambda: nn.MaxPool3d(3, 1, 1), [2, 3, 4, 5],
        "kernel 3, stride 1, padding 1")

    add("avg_pool1d", lambda: nn.AvgPool1d(2), [2, 3, 7], "kernel 2")
    add("avg_pool1d_overlap", lambda: nn.AvgPool1d(3, 2, 1), [2, 3, 11],
        "kernel 3, stride 2, padding 1")
    add("avg_pool1d_ceil_mode_exclude_pad",
        lambda: nn.AvgPool1d(4, 3, 2, ceil_mode=True, count_include_pad=False), [2, 2, 10],
        "kernel 4, stride 3, padding 2, ceil_mode, count_include_pad false")
    add("avg_pool1d_unbatched", lambda: nn.AvgPool1d(5, 1), [3, 23], "kernel 5, stride 1")
    add("avg_pool2d_wide", lambda: nn.AvgPool2d(3, 2, 1), [1, 2, 5, 37],
        "kernel 3, stride 2, padding 1")
    add("avg_pool3d", lambda: nn.AvgPool3d(2), [2, 2, 4, 5, 6], "kernel 2")
    add("avg_pool3d_ceil_mode", lambda: nn.AvgPool3d((2, 3, 2), (1, 2, 3), (1, 1, 0), True),
        [1, 2, 3, 6, 7], "kernel 2, 3, 2, stride 1, 2, 3, padding 1, 1, 0, ceil_mode")
    add("avg_pool3d_exclude_pad",
        lambda: nn.AvgPool3d(3, 2, 1, count_include_pad=False), [1, 2, 4, 5, 6],
        "kernel 3, stride 2, padding 1, count_include_pad false")
    add("avg_pool3d_divisor_override", lambda: nn.AvgPool3d(3, 2, 1, divisor_override=7),
        [2, 3, 4, 5], "kernel 3, stride 2, padding 1, divisor_override 7, unbatched")
    return c
