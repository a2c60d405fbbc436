"""Bilinear."""

from collections import OrderedDict

from torch import nn

from layers import Case


def cases():
    c = OrderedDict()
    c["bilinear"] = Case(lambda: nn.Bilinear(5, 3, 4), [[6, 5], [6, 3]])
    c["bilinear_no_bias"] = Case(lambda: nn.Bilinear(3, 7, 2, bias=False), [[5, 3], [5, 7]],
                                 options="bias false")
    c["bilinear_1d"] = Case(lambda: nn.Bilinear(4, 5, 3), [[4], [5]])
    c["bilinear_4d"] = Case(lambda: nn.Bilinear(2, 3, 5), [[2, 3, 2, 2], [2, 3, 2, 3]])
    c["bilinear_many_rows"] = Case(lambda: nn.Bilinear(3, 2, 2), [[67, 3], [67, 2]])
    c["bilinear_wide"] = Case(lambda: nn.Bilinear(17, 19, 3), [[3, 17], [3, 19]])
    return c
