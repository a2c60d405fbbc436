"""Losses of several values, as functions: ranking, embedding, Gaussian and CTC losses, whose targets
follow all outputs."""

from collections import OrderedDict

import torch
from torch import nn
from torch.nn import functional as F

from layers import Case, constant, indices, values


def signs(shape):
    return lambda key, dtype: indices(shape, 2)(key, dtype).to(dtype) * 2 - 1


def cases():
    c = OrderedDict()

    def add(name, f, *inputs):
        for reduction in ("mean", "sum"):
            c[f"{name}_{reduction}"] = Case(nn.Identity, list(inputs),
                                            call=lambda m, *xs, r=reduction: f(*xs, reduction=r))

    add("margin_ranking", F.margin_ranking_loss, [3, 5], [3, 5], signs([3, 5]))
    add("margin_ranking_margin", lambda *xs, reduction: F.margin_ranking_loss(*xs, margin=0.75, reduction=reduction),
        [19], [19], signs([19]))
    # At the edge, and equal.
    add("margin_ranking_edge", lambda *xs, reduction: F.margin_ranking_loss(*xs, margin=0.5, reduction=reduction),
        constant([1.0, 0.5, 0.25, 2.0]), constant([0.5, 1.0, 0.25, -2.0]), constant([1.0, -1.0, 1.0, -1.0]))
    add("cosine_embedding", F.cosine_embedding_loss, [9, 7], [9, 7], signs([9]))
    add("cosine_embedding_margin", lambda *xs, reduction: F.cosine_embedding_loss(*xs, margin=-0.25, reduction=reduction),
        [9, 7], [9, 7], signs([9]))
    add("cosine_embedding_one", F.cosine_embedding_loss, [7], [7], constant(1.0))
    add("triplet_margin", F.triplet_margin_loss, [9, 7], [9, 7], [9, 7])
    add("triplet_margin_swap",
        lambda *xs, reduction: F.triplet_margin_loss(*xs, margin=2.5, swap=True, reduction=reduction),
        [9, 7], [9, 7], [9, 7])
    # The negative is as far from both.
    add("triplet_margin_tie",
        lambda *xs, reduction: F.triplet_margin_loss(*xs, swap=True, reduction=reduction),
        constant([1.0, 0.0]), constant([0.0, 1.0]), constant([0.5, 0.5]))
    add("triplet_margin_one_norm",
        lambda *xs, reduction: F.triplet_margin_loss(*xs, p=1, eps=1e-3, margin=0.5, reduction=reduction),
        [7], [7], [7])
    add("triplet_margin_with_distance",
        lambda *xs, reduction: F.triplet_margin_with_distance_loss(
            *xs, distance_function=lambda a, b: 1 - F.cosine_similarity(a, b), margin=0.25, swap=True,
            reduction=reduction), [9, 7], [9, 7], [9, 7])
    variances = values([4, 5], 0.05, 2)
    gaussian = lambda f: lambda x, v, t, reduction: f(x, t, v, reduction=reduction)  # noqa: E731
    add("gaussian_nll", gaussian(F.gaussian_nll_loss), [4, 5], variances, [4, 5])
    add("gaussian_nll_full",
        gaussian(lambda *xs, reduction: F.gaussian_nll_loss(*xs, full=True, eps=0.75, reduction=reduction)),
        [4, 5], variances, [4, 5])

    def ctc(**options):
        return lambda x, *xs, reduction: F.ctc_loss(torch.log_softmax(x, -1), *xs, reduction=reduction, **options)

    # Equal neighbours, an empty target, an input as short as its target.
    padded = constant([[1, 2, 2, 3], [4, 4, 0, 0], [0, 0, 0, 0], [1, 2, 3, 4], [3, 1, 0, 0]])
    lengths, of_targets = constant([7, 5, 3, 4, 7]), constant([4, 2, 0, 4, 2])
    add("ctc", ctc(), [7, 5, 5], padded, lengths, of_targets)
    add("ctc_joined", ctc(), [7, 5, 5], constant([1, 2, 2, 3, 4, 4, 1, 2, 3, 4, 3, 1]), lengths, of_targets)
    add("ctc_blank", ctc(blank=4), [9, 2, 5], constant([[0, 2, 2], [3, 0, 1]]), constant([9, 6]), constant([3, 2]))
    add("ctc_one", ctc(), [6, 4], constant([2, 1, 1]), constant(6), constant(3))
    # The first target needs five steps.
    add("ctc_zero_infinity", ctc(zero_infinity=True), [7, 2, 4], constant([[1, 1, 2, 2], [3, 2, 1, 0]]),
        constant([4, 7]), constant([4, 3]))
    return c
