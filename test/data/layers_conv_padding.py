"""Padding of convolutions: to the same extents, and of every mode."""

from collections import OrderedDict

from torch import nn

from layers import Case


def one_image(m, x):
    return m(x.unsqueeze(0)).squeeze(0)


def cases():
    c = OrderedDict()

    def add(name, conv, x, out_channels, kernel, batched=True, call=None, **options):
        channels = x[1] if batched else x[0]

        def make():
            return conv(channels, out_channels, kernel, **options)

        c[name] = Case(make, [x], call=call, options=make().extra_repr())

    add("same_1d", nn.Conv1d, [2, 3, 9], 2, 3, padding="same")
    add("same_1d_even", nn.Conv1d, [2, 3, 9], 2, 4, padding="same")
    add("same_1d_dilation", nn.Conv1d, [1, 2, 7], 3, 2, padding="same", dilation=3)
    add("same_2d", nn.Conv2d, [2, 3, 5, 6], 2, (3, 2), padding="same")
    add("same_2d_groups", nn.Conv2d, [1, 4, 3, 5], 2, (2, 4), padding="same", dilation=(1, 3),
        groups=2)
    add("same_2d_wider_than_the_input", nn.Conv2d, [1, 2, 2, 3], 2, (6, 5), padding="same")
    add("same_3d", nn.Conv3d, [1, 2, 3, 4, 3], 2, (2, 3, 4), padding="same")
    add("valid_2d", nn.Conv2d, [2, 2, 5, 4], 3, (3, 2), padding="valid", stride=2)

    for mode in ("reflect", "replicate", "circular"):
        add(f"{mode}_1d", nn.Conv1d, [2, 3, 7], 2, 3, padding=2, padding_mode=mode)
        add(f"{mode}_1d_stride", nn.Conv1d, [1, 2, 11], 3, 4, padding=3, stride=2,
            padding_mode=mode)
        add(f"{mode}_1d_same", nn.Conv1d, [2, 2, 5], 2, 4, padding="same", padding_mode=mode)
        # This PyTorch's circular padding takes batches only.
        add(f"{mode}_1d_unbatched", nn.Conv1d, [2, 5], 3, 3, batched=False, padding=1,
            padding_mode=mode, call=one_image if mode == "circular" else None)
        add(f"{mode}_2d", nn.Conv2d, [2, 2, 5, 6], 3, 3, padding=(1, 2), padding_mode=mode)
        add(f"{mode}_2d_same_groups", nn.Conv2d, [1, 4, 4, 5], 2, (2, 3), padding="same",
            dilation=(3, 1), groups=2, bias=False, padding_mode=mode)
        add(f"{mode}_3d", nn.Conv3d, [1, 2, 3, 4, 3], 2, 2, padding=(1, 2, 1), padding_mode=mode)
    add("reflect_2d_most", nn.Conv2d, [1, 2, 3, 4], 2, 3, padding=(2, 3), padding_mode="reflect")
    add("reflect_3d_same", nn.Conv3d, [1, 1, 3, 2, 4], 2, (3, 2, 3), padding="same",
        padding_mode="reflect")
    add("circular_2d_whole_input", nn.Conv2d, [1, 2, 2, 3], 2, 3, padding=(2, 3),
        padding_mode="circular")
    add("replicate_2d_beyond_the_input", nn.Conv2d, [1, 2, 1, 2], 2, 3, padding=(3, 5),
        padding_mode="replicate")
    add("reflect_2d_without_padding", nn.Conv2d, [1, 2, 3, 4], 2, 3, padding_mode="reflect")
    add("reflect_2d_one_side", nn.Conv2d, [2, 2, 1, 4], 2, (1, 3), padding=(0, 1),
        padding_mode="reflect")
    return c
