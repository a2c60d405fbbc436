"""Modules that widen images."""

from collections import OrderedDict

from torch import nn
from torch.nn import functional as F

from layers import Case


class Circular(nn.Module):
    """PyTorch 1.13 has circular padding as a function only, of batches."""

    def __init__(self, *sides):
        super().__init__()
        self.sides = sides

    def forward(self, x):
        return F.pad(x, self.sides, mode="circular")


def cases():
    c = OrderedDict()

    def add(name, make, x):
        c[name] = Case(make, [x], options=str(make()))

    for name, kinds in (("reflection", (nn.ReflectionPad1d, nn.ReflectionPad2d, nn.ReflectionPad3d)),
                        ("replication", (nn.ReplicationPad1d, nn.ReplicationPad2d, nn.ReplicationPad3d)),
                        ("zero", tuple(lambda p, k=k: k(p, 0.0) for k in
                                       (nn.ConstantPad1d, nn.ConstantPad2d, nn.ConstantPad3d))),
                        ("constant", tuple(lambda p, k=k: k(p, -1.25) for k in
                                           (nn.ConstantPad1d, nn.ConstantPad2d, nn.ConstantPad3d)))):
        one, two, three = kinds
        add(name + "_1d", lambda one=one: one(2), [2, 3, 5])
        add(name + "_1d_sides", lambda one=one: one((1, 3)), [2, 1, 4])
        add(name + "_1d_unbatched", lambda one=one: one((2, 0)), [3, 7])
        add(name + "_2d", lambda two=two: two(1), [2, 3, 4, 2])
        add(name + "_2d_sides", lambda two=two: two((1, 2, 3, 0)), [2, 2, 4, 5])
        add(name + "_2d_unbatched", lambda two=two: two((0, 1, 2, 1)), [2, 3, 37])
        add(name + "_3d", lambda three=three: three(1), [1, 2, 3, 2, 4])
        add(name + "_3d_sides", lambda three=three: three((1, 2, 0, 1, 2, 1)), [1, 2, 3, 2, 4])
    add("circular_1d", lambda: Circular(2, 2), [2, 3, 5])
    add("circular_1d_sides", lambda: Circular(1, 4), [2, 1, 4])
    add("circular_2d", lambda: Circular(1, 1, 1, 1), [2, 3, 4, 2])
    add("circular_2d_sides", lambda: Circular(1, 2, 3, 0), [2, 2, 4, 5])
    add("circular_3d_sides", lambda: Circular(1, 2, 0, 1, 2, 1), [1, 2, 3, 2, 4])
    return c
