"""Embedding."""

import math
from collections import OrderedDict

from torch import nn

from layers import Case, indices


def cases():
    c = OrderedDict()
    c["embedding"] = Case(lambda: nn.Embedding(7, 5), [indices([4, 3], 7)])
    c["embedding_one_index"] = Case(lambda: nn.Embedding(3, 19), [indices([], 3)])
    c["embedding_sequence"] = Case(lambda: nn.Embedding(11, 1), [indices([23], 11)])
    c["embedding_3d"] = Case(lambda: nn.Embedding(5, 17), [indices([2, 3, 2], 5)])
    c["embedding_padding"] = Case(lambda: nn.Embedding(5, 3, padding_idx=2),
                                  [indices([4, 6], 5)], options="padding_idx 2")
    c["embedding_padding_from_the_end"] = Case(lambda: nn.Embedding(4, 6, padding_idx=-1),
                                               [indices([13], 4)], options="padding_idx -1")
    c["embedding_frequency"] = Case(lambda: nn.Embedding(6, 4, scale_grad_by_freq=True),
                                    [indices([3, 7], 6)], options="scale_grad_by_freq")
    c["embedding_frequency_padding"] = Case(
        lambda: nn.Embedding(4, 9, padding_idx=1, scale_grad_by_freq=True),
        [indices([17], 4)], options="padding_idx 1, scale_grad_by_freq")
    for key, most, p, training in (("", 1.0, 2.0, True), ("_eval", 1.0, 2.0, False), ("_inf", 0.4, math.inf, True),
                                   ("_p", 2.0, 1.5, True)):
        c["embedding_max_norm" + key] = Case(
            lambda most=most, p=p: nn.Embedding(6, 9, max_norm=most, norm_type=p), [indices([3, 2], 6)], training,
            options=f"max_norm {most}, norm_type {p}" + ("" if training else ", eval"))
    return c
