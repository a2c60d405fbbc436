"""Gates, norms over neighbouring channels, and modules that move elements or interpolate."""

from collections import OrderedDict

from torch import nn

from layers import Case, constant, values


def cases():
    c = OrderedDict()

    def add(name, make, x):
        c[name] = Case(make, [x], options=str(make()))

    add("glu", nn.GLU, [3, 6])
    add("glu_dim1", lambda: nn.GLU(1), [2, 4, 3, 5])
    add("glu_wide", lambda: nn.GLU(0), values([134], -20, 20))
    add("prelu", nn.PReLU, [2, 3, 37])
    add("prelu_scalar", nn.PReLU, [])
    add("prelu_channels", lambda: nn.PReLU(3), [2, 3, 5, 7])
    add("prelu_columns", lambda: nn.PReLU(5), [4, 5])
    add("prelu_bends", nn.PReLU, constant([-1.0, -0.0, 0.0, 1.0, 100.0, -100.0]))
    add("prelu_long", nn.PReLU, [3, 700])
    add("softmin", lambda: nn.Softmin(-1), [3, 5])
    add("softmin_dim1", lambda: nn.Softmin(1), [2, 4, 3])
    add("local_response_norm", lambda: nn.LocalResponseNorm(2), [2, 5, 3])
    add("local_response_norm_2d", lambda: nn.LocalResponseNorm(3, 0.5, 0.6, 2.0), [2, 4, 3, 5])
    add("local_response_norm_wide", lambda: nn.LocalResponseNorm(5, 2.0), [1, 3, 2, 2, 3])
    add("pixel_shuffle", lambda: nn.PixelShuffle(2), [2, 8, 3, 5])
    add("pixel_shuffle_three", lambda: nn.PixelShuffle(3), [9, 2, 1])
    add("pixel_unshuffle", lambda: nn.PixelUnshuffle(2), [2, 3, 4, 6])
    add("pixel_unshuffle_three", lambda: nn.PixelUnshuffle(3), [1, 2, 2, 3, 6])
    add("unfold", lambda: nn.Unfold(2), [2, 3, 4, 5])
    add("unfold_everything", lambda: nn.Unfold((2, 3), (2, 1), (1, 2), (1, 2)), [2, 2, 5, 6])
    add("unfold_unbatched", lambda: nn.Unfold((3, 2), padding=1), [2, 4, 3])
    add("fold", lambda: nn.Fold((4, 5), 2), [2, 12, 12])
    add("fold_everything", lambda: nn.Fold((5, 6), (2, 3), (2, 1), (1, 2), (1, 2)), [2, 12, 20])
    add("fold_unbatched", lambda: nn.Fold((4, 3), (3, 2), padding=1), [12, 16])
    for mode, x in (("nearest", [2, 3, 5]), ("nearest", [2, 3, 4, 5]), ("nearest", [1, 2, 3, 2, 4]),
                    ("nearest-exact", [2, 3, 5]), ("nearest-exact", [2, 3, 4, 5]),
                    ("nearest-exact", [1, 2, 3, 2, 4]), ("linear", [2, 3, 5]),
                    ("bilinear", [2, 3, 4, 5]), ("trilinear", [1, 2, 3, 2, 4]),
                    ("bicubic", [2, 3, 4, 5])):
        n = len(x) - 2
        name = f"upsample_{mode.replace('-', '_')}_{n}d"
        add(name, lambda mode=mode: nn.Upsample(scale_factor=2, mode=mode), x)
        add(name + "_fraction", lambda mode=mode: nn.Upsample(scale_factor=1.5, mode=mode), x)
        add(name + "_size", lambda mode=mode, n=n: nn.Upsample(size=[7, 3, 6][:n], mode=mode), x)
        if not mode.startswith("nearest"):
            add(name + "_corners",
                lambda mode=mode: nn.Upsample(scale_factor=2, mode=mode, align_corners=True), x)
            add(name + "_size_corners",
                lambda mode=mode, n=n: nn.Upsample(size=[7, 1, 6][:n], mode=mode,
                                                   align_corners=True), x)
            add(name + "_fraction_corners",
                lambda mode=mode: nn.Upsample(scale_factor=1.5, mode=mode, align_corners=True), x)
    return c
