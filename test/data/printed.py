"""Records how PyTorch prints tensors.

    /usr/bin/python3 test/data/printed.py           write printed.safetensors
    /usr/bin/python3 test/data/printed.py --check   recompute its outputs
"""

import math
import os
from collections import OrderedDict

from common import HERE, uniform, write_or_check

import torch

PATH = os.path.join(HERE, "printed.safetensors")
INF, NAN = math.inf, math.nan


def f32(*values):
    return torch.tensor(values, dtype=torch.float32)


TENSORS = OrderedDict(
    scalar=torch.tensor(1.5),
    whole=f32(1, -2, 0, 300),
    fractions=f32(0.25, -1.12345, 100, 0),
    zeros=torch.zeros(2, 3),
    not_finite=f32(INF, -INF, NAN, 1, -0.0),
    not_finite_fractions=f32(INF, -INF, NAN, 0.5),
    nothing_finite=f32(NAN, INF),
    large=f32(1e9, 2, 0),
    wide=f32(0.001, 50, -3),
    small=f32(0.00001, 0.0002),
    large_whole=f32(5000, -2),
    rows=uniform("rows", [3, 4], torch.float64),
    wrapped=uniform("wrapped", [30], torch.float32) * 10,
    wrapped_deep=uniform("wrapped deep", [2, 2, 17], torch.float64),
    deep=uniform("deep", [2, 1, 2, 3], torch.float32),
    integers=torch.arange(-4, 20).reshape(4, 6),
    int32=torch.tensor([1, -20, 300], dtype=torch.int32),
    bytes=torch.arange(0, 256, 5, dtype=torch.uint8),
    huge_integers=torch.tensor([2**62 + 1, -1]),
    shortened=torch.arange(1001, dtype=torch.float32),
    shortened_matrix=uniform("shortened", [40, 30], torch.float32),
    shortened_deep=torch.arange(7 * 2 * 80).reshape(7, 2, 80),
    shortened_rows=torch.arange(2000, dtype=torch.float64).reshape(1000, 2),
    empty=torch.zeros(0),
    empty_rows=torch.zeros(0, 3, dtype=torch.float64),
    empty_columns=torch.zeros(2, 0, dtype=torch.int64),
    suffix_on_a_new_line=torch.arange(1, 16, dtype=torch.float64),
)
OPTIONS = OrderedDict(
    short=dict(precision=2, threshold=10, edgeitems=2),
    wide=dict(linewidth=120, precision=6),
    scientific=dict(sci_mode=True),
    plain=dict(sci_mode=False),
)


def as_bytes(text):
    return torch.tensor(list(text.replace("dtype=torch.", "dtype=").encode()), dtype=torch.uint8)


def record():
    tensors = OrderedDict()
    for name, t in TENSORS.items():
        tensors[f"{name}/tensor"] = t
        tensors[f"{name}/default"] = as_bytes(str(t))
    for option, arguments in OPTIONS.items():
        torch.set_printoptions(profile="default")
        torch.set_printoptions(**arguments)
        for name in ("fractions", "wide", "large_whole", "not_finite", "wrapped", "integers"):
            tensors[f"{name}/{option}"] = as_bytes(str(TENSORS[name]))
    torch.set_printoptions(profile="default")
    return tensors


def main():
    write_or_check(PATH, record(), "printed")


if __name__ == "__main__":
    main()
