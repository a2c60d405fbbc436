"""Transposed convolutions."""

from collections import OrderedDict

from torch import nn

from layers import Case


def cases():
    c = OrderedDict()

    def add(name, conv, x, out_channels, kernel, batched=True, output_size=None, **options):
        channels = x[1] if batched else x[0]

        def make():
            return conv(channels, out_channels, kernel, **options)

        text = make().extra_repr()
        if output_size:
            c[name] = Case(make, [x], call=lambda m, x: m(x, output_size=output_size),
                           options=f"{text}, output_size={output_size}")
        else:
            c[name] = Case(make, [x], options=text)

    for n, conv, x in ((1, nn.ConvTranspose1d, [2, 3, 7]),
                       (2, nn.ConvTranspose2d, [2, 3, 4, 5]),
                       (3, nn.ConvTranspose3d, [1, 2, 3, 2, 4])):
        name, extents = f"conv_transpose{n}d", x[2:]
        add(name, conv, x, 4, 3 if n < 3 else 2)
        add(f"{name}_stride", conv, x, 2, 3, stride=2)
        add(f"{name}_output_padding", conv, x, 2, 3, stride=2, padding=1, output_padding=1)
        add(f"{name}_dilation", conv, x, 2, 2, dilation=3, output_padding=2, padding=1)
        add(f"{name}_unbatched", conv, x[1:], 2, 2, batched=False, stride=2)
        add(f"{name}_output_size", conv, x, 2, 3, stride=2, padding=1,
            output_size=[2 * e for e in extents])

    add("conv_transpose1d_no_bias", nn.ConvTranspose1d, [2, 3, 7], 3, 2, bias=False)
    add("conv_transpose1d_groups", nn.ConvTranspose1d, [2, 4, 6], 6, 3, groups=2)
    add("conv_transpose1d_1", nn.ConvTranspose1d, [2, 5, 4], 3, 1)
    add("conv_transpose1d_stride_beyond_the_kernel", nn.ConvTranspose1d, [2, 3, 5], 2, 2, stride=5)
    add("conv_transpose1d_padding_beyond_the_kernel", nn.ConvTranspose1d, [1, 2, 9], 3, 2,
        padding=3)
    add("conv_transpose1d_wide", nn.ConvTranspose1d, [1, 3, 37], 2, 4, padding=1)
    add("conv_transpose2d_groups", nn.ConvTranspose2d, [2, 4, 3, 5], 2, (2, 3), groups=2,
        padding=(0, 1))
    add("conv_transpose2d_depthwise", nn.ConvTranspose2d, [1, 3, 4, 4], 6, 3, stride=2, groups=3)
    add("conv_transpose2d_everything", nn.ConvTranspose2d, [2, 4, 3, 5], 6, (3, 2), stride=(2, 3),
        padding=(2, 1), output_padding=(1, 3), dilation=(2, 4), groups=2, bias=False)
    add("conv_transpose2d_output_size_uneven", nn.ConvTranspose2d, [1, 2, 4, 3], 2, 3,
        stride=(2, 3), output_size=[10, 11])
    add("conv_transpose2d_many_channels", nn.ConvTranspose2d, [1, 2, 3, 2], 67, 1)
    add("conv_transpose3d_non_cubic", nn.ConvTranspose3d, [2, 2, 2, 3, 4], 3, (1, 3, 2),
        stride=(2, 1, 3), padding=(0, 2, 1), output_padding=(1, 0, 2), dilation=(1, 2, 1))
    add("conv_transpose3d_groups", nn.ConvTranspose3d, [1, 4, 2, 2, 3], 2, 2, stride=(1, 2, 2),
        groups=2)
    return c
