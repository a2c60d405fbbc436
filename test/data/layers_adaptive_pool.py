"""Adaptive and fractional pooling."""

from collections import OrderedDict

from torch import nn

from layers import Case, constant


def cases():
    c = OrderedDict()
    for name, kinds in (
            ("avg", (nn.AdaptiveAvgPool1d, nn.AdaptiveAvgPool2d, nn.AdaptiveAvgPool3d)),
            ("max", (nn.AdaptiveMaxPool1d, nn.AdaptiveMaxPool2d, nn.AdaptiveMaxPool3d))):
        for key, x, size in (
                ("1d", [2, 3, 7], 3), ("1d_more", [2, 2, 5], 8), ("1d_unbatched", [3, 11], 4),
                ("1d_one", [2, 2, 19], 1),
                ("2d", [2, 3, 7, 5], (3, 2)), ("2d_one", [2, 3, 5, 7], 1),
                ("2d_unchanged", [2, 2, 5, 7], (None, 3)), ("2d_more", [1, 2, 3, 4], (5, 7)),
                ("2d_unbatched", [3, 8, 9], (4, 3)),
                ("3d", [1, 2, 5, 4, 7], (2, 3, 3)), ("3d_one", [2, 2, 3, 2, 5], 1),
                ("3d_unchanged", [2, 1, 3, 4, 5], (2, None, 2)), ("3d_unbatched", [2, 4, 3, 5], 2)):
            kind = kinds[int(key[0]) - 1]
            c[f"adaptive_{name}_pool{key}"] = Case(lambda k=kind, s=size: k(s), [x],
                                                   options=f"output_size {size}")
    # The second input: PyTorch's random samples.
    for key, x, kernel, size, samples in (
            ("2d", [2, 3, 9, 7], (2, 3), (4, 3), [[[0.1, 0.9], [0.5, 0.3], [0.99, 0.0]], [[0.2, 0.7], [0.4, 0.6], [0.8, 0.05]]]),
            ("2d_one", [1, 1, 5, 4], 2, 1, [[[0.3, 0.6]]]),
            ("3d", [1, 2, 6, 7, 9], 2, (3, 4, 5), [[[0.1, 0.9, 0.4], [0.5, 0.3, 0.7]]])):
        kind = nn.FractionalMaxPool2d if key[0] == "2" else nn.FractionalMaxPool3d

        def call(m, a, u, kind=kind, kernel=kernel, size=size):
            return kind(kernel, output_size=size, _random_samples=u.detach())(a) + 0 * u.sum()
        c[f"fractional_max_pool{key}"] = Case(nn.Identity, [x, constant(samples)], call=call,
                                              options=f"{kernel}, output_size {size}")
    for key, x, kernel, ratio, samples in (
            ("2d_ratio", [1, 2, 9, 7], (2, 3), (0.5, 0.7), [[[0.1, 0.9], [0.5, 0.3]]]),
            ("3d_ratio", [1, 1, 6, 7, 9], 2, 0.6, [[[0.1, 0.9, 0.4]]])):
        kind = nn.FractionalMaxPool2d if key[0] == "2" else nn.FractionalMaxPool3d

        def call_ratio(m, a, u, kind=kind, kernel=kernel, ratio=ratio):
            return kind(kernel, output_ratio=ratio, _random_samples=u.detach())(a) + 0 * u.sum()
        c[f"fractional_max_pool{key}"] = Case(nn.Identity, [x, constant(samples)], call=call_ratio,
                                              options=f"{kernel}, output_ratio {ratio}")
    return c
