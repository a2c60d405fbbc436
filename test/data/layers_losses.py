"""Losses of equal shapes: x1 is the target."""

from collections import OrderedDict

import torch
from torch import nn

from layers import Case, constant, values


class Signs(nn.Module):
    """Targets 1 and -1, from numbers."""

    def __init__(self, loss):
        super().__init__()
        self.loss = loss

    def forward(self, x, t):
        return self.loss(x, t.detach().sign())


def cases():
    c = OrderedDict()

    def add(name, make, x=None, t=None, of=lambda m: m):
        for reduction in ("mean", "sum"):
            def built(reduction=reduction):
                return of(make(reduction))
            c[f"{name}_{reduction}"] = Case(built, [x or values([7, 90], -3, 3), t or values([7, 90], -3, 3)],
                                            options=f"{make(reduction)}, {reduction}")

    share, sure = values([7, 90], 0, 1), values([5, 3], 0.01, 0.99)
    add("l1_loss", lambda r: nn.L1Loss(reduction=r))
    add("l1_loss_equal", lambda r: nn.L1Loss(reduction=r), constant([1.0, 2.0, -1.0]), constant([1.0, 0.0, 0.0]))
    add("smooth_l1_loss", lambda r: nn.SmoothL1Loss(reduction=r))
    add("smooth_l1_loss_beta", lambda r: nn.SmoothL1Loss(reduction=r, beta=0.5))
    add("huber_loss", lambda r: nn.HuberLoss(reduction=r))
    add("huber_loss_delta", lambda r: nn.HuberLoss(reduction=r, delta=2.5))
    add("bce_with_logits", lambda r: nn.BCEWithLogitsLoss(reduction=r), None, share)
    add("bce_with_logits_far", lambda r: nn.BCEWithLogitsLoss(reduction=r), constant([-200.0, 200.0, 50.0, -50.0, 0.0]),
        constant([1.0, 0.0, 1.0, 0.0, 0.5]))
    add("bce_loss", lambda r: nn.BCELoss(reduction=r), sure, values([5, 3], 0, 1))
    add("bce_loss_ends", lambda r: nn.BCELoss(reduction=r), constant([0.0, 1.0, 0.25]), constant([0.0, 0.5, 1.0]))
    add("kl_div", lambda r: nn.KLDivLoss(reduction=r), values([5, 3], -4, 0), values([5, 3], 0, 1))
    add("kl_div_zero", lambda r: nn.KLDivLoss(reduction=r), constant([-1.0, -2.0]), constant([0.0, 1.0]))
    add("kl_div_log", lambda r: nn.KLDivLoss(reduction=r, log_target=True), values([5, 3], -4, 0), values([5, 3], -4, 0))
    add("poisson_nll_loss", lambda r: nn.PoissonNLLLoss(reduction=r), None, values([7, 90], 0, 5))
    add("poisson_nll_loss_full", lambda r: nn.PoissonNLLLoss(reduction=r, log_input=False, full=True), sure,
        values([5, 3], 0, 5))
    add("soft_margin_loss", lambda r: nn.SoftMarginLoss(reduction=r), of=Signs)
    add("hinge_embedding_loss", lambda r: nn.HingeEmbeddingLoss(reduction=r, margin=1.5), of=Signs)
    c["kl_div_batchmean"] = Case(lambda: nn.KLDivLoss(reduction="batchmean"), [values([5, 3], -4, 0), values([5, 3], 0, 1)],
                                 options="batchmean")
    c["bce_with_logits_pos_weight"] = Case(lambda: PosWeight(), [values([7, 90], -3, 3), share], options="pos_weight 2.5")
    # Weights of elements, and of classes, both of which are broadcast.
    c["bce_with_logits_weights"] = Case(lambda: Weights(), [values([7, 5], -3, 3), values([7, 5], 0, 1)],
                                        options="weight of 5, pos_weight of 5")
    c["bce_loss_weight"] = Case(lambda: Weights(probabilities=True), [sure, values([5, 3], 0, 1)],
                                options="weight of 5 by 3")
    return c


class PosWeight(nn.Module):
    def forward(self, x, t):
        return nn.functional.binary_cross_entropy_with_logits(x, t, pos_weight=x.new_tensor([2.5]))


class Weights(nn.Module):
    def __init__(self, probabilities=False):
        super().__init__()
        self.probabilities = probabilities

    def forward(self, x, t):
        if self.probabilities:
            weight = (torch.arange(x.numel()).reshape(x.shape) % 4).to(x.dtype) / 2
            return nn.functional.binary_cross_entropy(x, t, weight=weight)
        weight, pos_weight = x.new_tensor([0.5, 1, 2, 0, 1.5]), x.new_tensor([3, 1, 0.5, 2, 0.25])
        return nn.functional.binary_cross_entropy_with_logits(x, t, weight=weight, pos_weight=pos_weight)
