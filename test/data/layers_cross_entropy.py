"""Cross entropies with weights of classes and with probabilities as targets, as functions of (x, target, weight)."""

from collections import OrderedDict

import torch
from torch import nn
from torch.nn import functional as F

from layers import Case, constant, values


def cases():
    c = OrderedDict()

    def add(name, f, *inputs, **options):
        for reduction in ("mean", "sum"):
            c[f"{name}_{reduction}"] = Case(
                nn.Identity, list(inputs),
                call=lambda m, x, t, w, r=reduction: f(x, t.detach(), w.detach(), reduction=r, **options))

    labels = constant([4, 0, 2, -100, 1, 3, 2, -100, 0])
    weights, shares = values([5], 0.1, 2), values([9, 5], 0, 0.4)
    add("weight", F.cross_entropy, [9, 5], labels, weights)
    add("weight_smoothing", F.cross_entropy, [9, 5], labels, weights, label_smoothing=0.1)
    add("weight_ignore", F.cross_entropy, [9, 5], constant([4, 0, 2, 2, 1, 3, 2, 1, 0]), weights, ignore_index=2,
        label_smoothing=0.2)
    add("weight_one", F.cross_entropy, [5], constant(3), weights)
    add("weight_image", F.cross_entropy, [2, 3, 2, 2], constant([[[2, 0], [1, 1]], [[-100, 2], [0, 0]]]),
        values([3], 0.1, 2), label_smoothing=0.1)
    add("probabilities", F.cross_entropy, [9, 5], shares, weights)
    add("probabilities_smoothing", F.cross_entropy, [9, 5], shares, weights, label_smoothing=0.3)
    add("probabilities_one", F.cross_entropy, [5], values([5], 0, 0.4), weights)
    add("probabilities_image", F.cross_entropy, [2, 3, 2, 2], values([2, 3, 2, 2], 0, 0.5), values([3], 0.1, 2))
    add("probabilities_unweighted", lambda x, t, w, reduction: F.cross_entropy(x, t, reduction=reduction), [9, 5], shares,
        weights)
    add("nll_weight", lambda x, t, w, reduction: F.nll_loss(torch.log_softmax(x, 1), t, w, reduction=reduction), [9, 5],
        labels, weights)
    return c
