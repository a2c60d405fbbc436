"""Activations with parameters, and element-wise ones without."""

from collections import OrderedDict

from torch import nn
from torch.nn import functional as F

from layers import Case, constant, values


class Hardsigmoid(nn.Module):
    """In the backward of double, PyTorch 1.13 itself uses 1/6 rounded to float."""

    def forward(self, x):
        return F.relu6(x + 3) / 6


def cases():
    c = OrderedDict()

    # At 3 the slope of PyTorch 1.13's hardswish depends on the place in the tensor.
    def add(name, build, options=""):
        c[name] = Case(build, [[3, 5, 7]], options=options)
        c[name + "_wide"] = Case(build, [values([67], -30, 30)], options=options)
        c[name + "_bends"] = Case(build, [constant([-3.0, -1.0, -0.0, 0.0, 1.0, 2.5, 6.0, 100.0,
                                                    -100.0, 1e-30, -1e-30])], options=options)

    add("silu", nn.SiLU)
    add("leaky_relu", nn.LeakyReLU)
    add("leaky_relu_slope", lambda: nn.LeakyReLU(0.25), "negative_slope 0.25")
    add("elu", nn.ELU)
    add("elu_alpha", lambda: nn.ELU(0.7), "alpha 0.7")
    add("celu_alpha", lambda: nn.CELU(0.5), "alpha 0.5")
    add("selu", nn.SELU)
    add("softplus", nn.Softplus)
    add("softplus_options", lambda: nn.Softplus(2.5, 10), "beta 2.5, threshold 10")
    add("log_sigmoid", nn.LogSigmoid)
    add("hardtanh", nn.Hardtanh)
    add("hardtanh_options", lambda: nn.Hardtanh(-0.5, 1.5), "from -0.5 to 1.5")
    add("relu6", nn.ReLU6)
    add("hard_sigmoid", Hardsigmoid)
    add("hardswish", nn.Hardswish)
    add("mish", nn.Mish)
    add("softsign", nn.Softsign)
    add("threshold", lambda: nn.Threshold(0.1, 20), "threshold 0.1, value 20")
    add("hardshrink", nn.Hardshrink)
    add("hardshrink_lambd", lambda: nn.Hardshrink(1), "lambd 1")
    add("softshrink", nn.Softshrink)
    add("softshrink_lambd", lambda: nn.Softshrink(1), "lambd 1")
    add("tanhshrink", nn.Tanhshrink)
    return c
