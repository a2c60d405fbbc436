"""grid_sample and affine_grid, whose first case reads outside of the image."""

from collections import OrderedDict

from torch import nn
from torch.nn import functional as F

from layers import Case, values


def cases():
    c = OrderedDict()
    grid = values([2, 4, 3, 2], -1.6, 1.6)
    for mode in ("bilinear", "nearest"):
        for outside in ("zeros", "border", "reflection"):
            for aligns in (False, True):
                name = f"{mode}_{outside}" + ("_aligned" if aligns else "")
                c[name] = Case(nn.Identity, [[2, 3, 5, 4], grid],
                               call=lambda m, x, g, o=(mode, outside, aligns): F.grid_sample(x, g, *o),
                               options=f"mode {mode}, outside {outside}, align_corners {aligns}")
    for aligns in (False, True):
        c["affine" + ("_aligned" if aligns else "")] = Case(
            nn.Identity, [[2, 2, 3]], call=lambda m, t, a=aligns: F.affine_grid(t, [2, 1, 3, 4], a),
            options=f"output_size 3, 4, align_corners {aligns}")
    return c
