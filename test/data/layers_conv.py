"""Convolutions over one and three dimensions."""

from collections import OrderedDict

from torch import nn

from layers import Case


def cases():
    c = OrderedDict()

    def add(name, conv, x, out_channels, kernel, batched=True, **options):
        channels = x[1] if batched else x[0]

        def make():
            return conv(channels, out_channels, kernel, **options)

        c[name] = Case(make, [x], options=make().extra_repr())

    add("conv1d", nn.Conv1d, [2, 3, 11], 4, 3)
    add("conv1d_stride", nn.Conv1d, [3, 2, 13], 5, 4, stride=3, padding=2)
    add("conv1d_dilation", nn.Conv1d, [2, 2, 37], 3, 3, padding=4, dilation=5)
    add("conv1d_groups", nn.Conv1d, [2, 4, 9], 6, 2, groups=2, bias=False)
    add("conv1d_depthwise", nn.Conv1d, [1, 5, 17], 5, 3, padding=1, groups=5)
    add("conv1d_1", nn.Conv1d, [2, 7, 5], 3, 1)
    add("conv1d_unbatched", nn.Conv1d, [3, 8], 2, 3, batched=False)
    add("conv1d_everything", nn.Conv1d, [2, 6, 23], 9, 3, stride=2, padding=3, dilation=2,
        groups=3, bias=False)

    add("conv3d", nn.Conv3d, [2, 2, 4, 5, 3], 3, 2)
    add("conv3d_stride", nn.Conv3d, [1, 2, 5, 6, 7], 2, 3, stride=2, padding=1)
    add("conv3d_non_cubic", nn.Conv3d, [1, 2, 4, 6, 5], 3, (1, 3, 2), stride=(2, 1, 3),
        padding=(0, 2, 1), dilation=(1, 2, 3))
    add("conv3d_groups", nn.Conv3d, [2, 4, 3, 3, 4], 2, (2, 2, 3), groups=2, bias=False)
    add("conv3d_unbatched", nn.Conv3d, [2, 3, 4, 5], 3, 3, batched=False, padding=1)
    return c
