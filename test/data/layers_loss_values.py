"""Losses with reduction="none", and sums of them: x1 is the target."""

from collections import OrderedDict

import torch
from torch import nn
from torch.nn import functional as F

from layers import Case, constant, indices, values


def cases():
    c = OrderedDict()

    def add(name, f, *inputs):
        c[name] = Case(nn.Identity, list(inputs), call=lambda m, *xs: f(*xs, reduction="none"))

    x, share = values([7, 9], -3, 3), values([7, 9], 0.05, 0.95)
    add("mse_loss", F.mse_loss, x, x)
    add("l1_loss", F.l1_loss, x, x)
    add("smooth_l1_loss", lambda a, t, reduction: F.smooth_l1_loss(a, t, beta=0.5, reduction=reduction), x, x)
    add("huber_loss", lambda a, t, reduction: F.huber_loss(a, t, delta=2.5, reduction=reduction), x, x)
    add("bce_with_logits", lambda a, t, reduction: F.binary_cross_entropy_with_logits(
        a, t, pos_weight=a.new_tensor([2.5]), reduction=reduction), x, share)
    add("bce_loss", F.binary_cross_entropy, share, share)
    add("kl_div", F.kl_div, x, share)
    add("kl_div_log", lambda a, t, reduction: F.kl_div(a, t, log_target=True, reduction=reduction), x, x)
    add("poisson_nll_loss", F.poisson_nll_loss, x, values([7, 9], 0, 5))
    add("poisson_nll_loss_full", lambda a, t, reduction: F.poisson_nll_loss(
        a, t, log_input=False, full=True, reduction=reduction), share, values([7, 9], 0, 5))
    # PyTorch has no gradient by these targets.
    signs = constant([[1.0, -1.0, 1.0], [-1.0, -1.0, 1.0]])
    add("soft_margin_loss", lambda a, t, reduction: F.soft_margin_loss(a, t.detach(), reduction=reduction), [2, 3], signs)
    add("hinge_embedding_loss", lambda a, t, reduction: F.hinge_embedding_loss(
        a, t.detach(), margin=1.5, reduction=reduction), [2, 3], signs)
    add("multilabel_soft_margin_loss", F.multilabel_soft_margin_loss, x, share)

    labels = constant([4, 0, 2, -100, 1, 3, 2, -100, 0])
    weights = [0.5, 1.25, 0.25, 2.0, 0.75]
    of_classes = lambda a: a.new_tensor(weights)  # noqa: E731
    add("cross_entropy", F.cross_entropy, [9, 5], labels)
    add("cross_entropy_smoothing", lambda a, t, reduction: F.cross_entropy(
        a, t, label_smoothing=0.2, ignore_index=2, reduction=reduction), [9, 5], constant([4, 0, 2, 2, 1, 3, 2, 1, 0]))
    add("cross_entropy_weight", lambda a, t, reduction: F.cross_entropy(
        a, t, weight=of_classes(a), label_smoothing=0.1, reduction=reduction), [9, 5], labels)
    add("cross_entropy_one", F.cross_entropy, [5], constant(3))
    add("cross_entropy_image", F.cross_entropy, [2, 3, 2, 2], constant([[[2, 0], [1, 1]], [[-100, 2], [0, 0]]]))
    add("cross_entropy_probabilities", lambda a, t, reduction: F.cross_entropy(
        a, t, weight=of_classes(a), label_smoothing=0.3, reduction=reduction), [9, 5], values([9, 5], 0, 0.4))
    add("nll_loss", lambda a, t, reduction: F.nll_loss(a, t, weight=of_classes(a), reduction=reduction), [9, 5], labels)
    add("multi_margin_loss", lambda a, t, reduction: F.multi_margin_loss(a, t, p=2, margin=0.7, reduction=reduction),
        [9, 5], indices([9], 5))
    add("multilabel_margin_loss", F.multilabel_margin_loss, [2, 4], constant([[3, 0, -1, 1], [1, 2, 3, -1]]))

    add("margin_ranking_loss", F.margin_ranking_loss, [3, 5], [3, 5], constant([[1.0, -1.0, 1.0, 1.0, -1.0]] * 3))
    add("triplet_margin_loss", lambda *xs, reduction: F.triplet_margin_loss(
        *xs, margin=2.5, swap=True, reduction=reduction), [9, 7], [9, 7], [9, 7])
    add("gaussian_nll_loss", lambda a, v, t, reduction: F.gaussian_nll_loss(a, t, v, reduction=reduction), [4, 5],
        values([4, 5], 0.05, 2), [4, 5])
    add("ctc_loss", lambda a, *xs, reduction: F.ctc_loss(torch.log_softmax(a, -1), *xs, reduction=reduction), [7, 3, 5],
        constant([[1, 2, 2, 3], [4, 4, 0, 0], [0, 0, 0, 0]]), constant([7, 5, 3]), constant([4, 2, 0]))

    # Samples with weights; two terms; a target that is an output of the network.
    c["weighted"] = Case(nn.Identity, [[9, 5], labels, values([9], 0, 2)], call=lambda m, a, t, w: (
        w * F.cross_entropy(a, t, reduction="none")).mean())
    c["sum"] = Case(nn.Identity, [[9, 5], labels, [9, 5]], call=lambda m, a, t, b: (
        0.75 * F.cross_entropy(a, t) + 0.25 * F.mse_loss(a, b, reduction="sum")))
    c["distillation"] = Case(nn.Identity, [[9, 5], [9, 5]], call=lambda m, a, b: (
        4 * F.kl_div(torch.log_softmax(a / 2, 1), torch.softmax(b / 2, 1), reduction="batchmean")
        + F.cross_entropy(a, torch.softmax(b, 1))))
    return c
