"""Embedding bags of matrices of indices."""

from collections import OrderedDict

from torch import nn

from layers import Case, constant, indices


def cases():
    c = OrderedDict()
    for mode in ("mean", "sum", "max"):
        c[f"bag_{mode}"] = Case(lambda mode=mode: nn.EmbeddingBag(7, 5, mode=mode), [indices([4, 3], 7)], options=mode)
        c[f"bag_{mode}_padding"] = Case(
            lambda mode=mode: nn.EmbeddingBag(5, 19, mode=mode, padding_idx=2),
            [constant([[0, 2, 1, 2], [2, 2, 2, 2], [4, 4, 3, 0]])], options=f"{mode}, padding_idx 2")
    # With where each bag begins, and a weight for each index.
    for mode in ("mean", "sum", "max"):
        c[f"bag_{mode}_offsets"] = Case(lambda mode=mode: nn.EmbeddingBag(7, 5, mode=mode, padding_idx=3),
                                        [indices([9], 7), constant([0, 2, 2, 6])], options=f"{mode}, padding_idx 3, offsets")
    c["bag_weighted"] = Case(lambda: nn.EmbeddingBag(7, 5, mode="sum", padding_idx=3), [indices([4, 3], 7), [4, 3]],
                             call=lambda m, i, w: m(i, per_sample_weights=w), options="sum, per_sample_weights")
    c["bag_weighted_offsets"] = Case(lambda: nn.EmbeddingBag(7, 5, mode="sum"),
                                     [indices([9], 7), constant([0, 4, 9]), [9]],
                                     options="sum, offsets, per_sample_weights")
    c["bag_single"] = Case(lambda: nn.EmbeddingBag(6, 3), [indices([5, 1], 6)], options="one index for each bag")
    # Of Embedding: EmbeddingBag 1.13 divides by the frequency of another index.
    for mode in ("mean", "sum"):
        c[f"bag_{mode}_frequency"] = Case(
            lambda: nn.Embedding(4, 5, scale_grad_by_freq=True), [indices([4, 5], 4)],
            call=lambda m, i, mode=mode: getattr(m(i), mode)(1), options=f"{mode}, scale_grad_by_freq")
    for mode in ("mean", "max"):
        c[f"bag_{mode}_max_norm"] = Case(lambda mode=mode: nn.EmbeddingBag(7, 5, mode=mode, max_norm=0.6),
                                         [indices([4, 3], 7)], options=f"{mode}, max_norm 0.6")
    c["bag_weighted_max_norm"] = Case(lambda: nn.EmbeddingBag(7, 5, mode="sum", max_norm=0.5),
                                      [indices([4, 3], 7), [4, 3]], options="sum, per_sample_weights, max_norm 0.5",
                                      call=lambda m, i, w: m(i, per_sample_weights=w))
    return c
