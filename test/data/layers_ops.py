"""Operations on tensors, as functions: the prefix of a case is the header of
include/ikebana/ops, or `formula` if it takes several."""

from collections import OrderedDict

import torch
from torch import nn
from torch.nn import functional as F

from layers import Case, booleans, constant, indices, values


def cases():
    c = OrderedDict()

    def add(name, f, *inputs):
        c[name] = Case(nn.Identity, list(inputs), call=lambda m, *xs: f(*xs))

    positive = values([3, 5], 0.2, 3)
    for f in ("exp", "square", "abs", "sign", "erf"):
        add("elementwise_" + f, getattr(torch, f), [3, 5])
    add("elementwise_neg", lambda x: -x, [37])
    for f in ("log", "sqrt", "rsqrt", "reciprocal"):
        add("elementwise_" + f, getattr(torch, f), positive)
    pairs = OrderedDict(add=torch.add, sub=torch.sub, mul=torch.mul, div=lambda a, b: a / b, maximum=torch.maximum, minimum=torch.minimum)
    for f, g in pairs.items():
        def second(shape, f=f):
            return values(shape, 0.5, 2) if f == "div" else shape

        add("elementwise_" + f, g, [3, 5], second([3, 5]))
        add("elementwise_" + f + "_row", g, [4, 3, 7], second([7]))
        add("elementwise_" + f + "_column", g, [3, 1], second([1, 19]))
        add("elementwise_" + f + "_middle", g, [2, 3, 5], second([2, 1, 5]))
        add("elementwise_" + f + "_scalar", g, [], second([3, 5]))
    add("elementwise_equal_maximum", torch.maximum, constant([1.0, 2.0, -1.0]),
        constant([1.0, 0.5, -1.0]))
    add("elementwise_large", torch.mul, [2, 600], [2, 1])
    add("elementwise_pow", torch.pow, values([3, 4], 0.2, 2), values([4], -2, 3))
    add("elementwise_pow_cubic", lambda x: x ** 3, [3, 4])
    add("elementwise_pow_of_two", lambda x: 2 ** x, [3, 4])
    add("formula_numbers", lambda x: 3 - 2 * x / 5 + 1 / (x + 7) - (x * 3 + 0.5), [3, 5])
    add("elementwise_clamp", lambda x: torch.clamp(x, -1, 0.5), [3, 5])
    add("elementwise_where", lambda c, x, y: torch.where(c != 0, x, y),
        constant([[0.0, 1.0, 2.0], [1.0, 0.0, 0.0]]), [2, 3], [3])
    add("formula_where", lambda x, y: torch.where(x > 0.25, y, -1.5 * x), [3, 5], [5])
    for f in ("eq", "ne", "lt", "le", "gt", "ge"):
        add("elementwise_" + f,
            lambda a, b, f=f: getattr(torch, f)(a, b).to(a.dtype) + 0 * (a + b),
            constant([[1.0, 2.0, -1.0, 0.0], [3.0, 0.5, 0.0, 2.0]]),
            constant([1.0, 2.0, 0.0, 0.5]))

    reductions = OrderedDict(
        sum=lambda x, d, k: torch.sum(x, d, k), mean=lambda x, d, k: torch.mean(x, d, k),
        var=lambda x, d, k: torch.var(x, d, True, k), max=lambda x, d, k: torch.amax(x, d, k),
        min=lambda x, d, k: torch.amin(x, d, k), logsumexp=lambda x, d, k: torch.logsumexp(x, d, k),
        norm=lambda x, d, k: torch.linalg.vector_norm(x, 2, d, k))
    for f, g in reductions.items():
        add(f"reduction_{f}_last", lambda x, g=g: g(x, -1, False), [3, 37])
        add(f"reduction_{f}_first", lambda x, g=g: g(x, 0, False), [9, 19])
        add(f"reduction_{f}_middle", lambda x, g=g: g(x, 1, True), [2, 5, 7])
        add(f"reduction_{f}_outer", lambda x, g=g: g(x, (0, 2), False), [3, 4, 5, 2])
        add(f"reduction_{f}_inner", lambda x, g=g: g(x, (1, 3), True), [2, 3, 4, 5])
        add(f"reduction_{f}_all", lambda x, g=g: g(x, (0, 1, 2), False), [3, 2, 7])
    add("reduction_sum_long", lambda x: torch.sum(x, (0, 2)), [300, 3, 2])
    add("reduction_var_biased", lambda x: torch.var(x, 1, False), [4, 9])
    add("reduction_max_equal", lambda x: torch.amax(x, 1),
        constant([[1.0, 3.0, 3.0], [2.0, -1.0, 2.0]]))
    add("reduction_norm_one", lambda x: torch.linalg.vector_norm(x, 1, 1), [3, 11])
    add("reduction_norm_infinity", lambda x: torch.linalg.vector_norm(x, float("inf"), 1), [3, 11])
    add("reduction_norm_three", lambda x: torch.linalg.vector_norm(x, 3, 1), [3, 11])
    add("along_cumsum_last", lambda x: torch.cumsum(x, -1), [3, 37])
    add("along_cumsum_middle", lambda x: torch.cumsum(x, 1), [2, 5, 7])
    for f in ("argmax", "argmin"):
        g = getattr(torch, f)
        add(f"along_{f}_last", lambda x, g=g: g(x, -1).to(x.dtype) + 0 * x.sum(), [3, 37])
        add(f"along_{f}_first", lambda x, g=g: g(x, 0, True).to(x.dtype) + 0 * x.sum(), [9, 4, 3])
        add(f"along_{f}_all", lambda x, g=g: g(x).to(x.dtype) + 0 * x.sum(), [5, 7])

    add("product_matmul", torch.matmul, [5, 7], [7, 3])
    add("product_matmul_batch", torch.matmul, [2, 3, 5, 7], [2, 3, 7, 4])
    add("product_matmul_broadcast", torch.matmul, [2, 1, 5, 7], [3, 7, 4])
    add("product_matmul_of_matrix", torch.matmul, [2, 3, 5, 7], [7, 4])
    add("product_matmul_vector", torch.matmul, [2, 5, 7], [7])
    add("product_vector_matmul", torch.matmul, [7], [3, 7, 4])
    add("product_dot", torch.matmul, [19], [19])
    add("product_matmul_large", torch.matmul, [65, 70], [70, 33])
    add("product_matmul_nt", lambda a, b: a @ b.transpose(-2, -1), [2, 3, 5, 7], [2, 3, 4, 7])
    add("product_matmul_tn", lambda a, b: a.transpose(-2, -1) @ b, [2, 7, 5], [2, 7, 4])
    for i, (e, a, b) in enumerate((("bhqd,bhkd->bhqk", [2, 3, 5, 4], [2, 3, 6, 4]),
                                   ("bqhd,bkhd->bhqk", [2, 5, 3, 4], [2, 6, 3, 4]),
                                   ("ij,jk->ki", [5, 7], [7, 3]), ("i,j->ij", [5], [7]),
                                   ("ij,ij->", [5, 7], [5, 7]), ("ijk,jil->kl", [3, 4, 5], [4, 3, 2]),
                                   ("ijb,jkb->ikb", [3, 4, 5], [4, 6, 5]), ("ij,k->jk", [3, 4], [5]),
                                   ("abc,cd->dab", [2, 3, 4], [4, 5]), ("ba,bc->bac", [4, 3], [4, 5]),
                                   ("nchw,nc->nhw", [2, 3, 4, 5], [2, 3]))):
        add(f"product_einsum_{i}", lambda a, b, e=e: torch.einsum(e, a, b), a, b)

    add("view_reshape", lambda x: x.reshape(3, -1, 2), [2, 3, 5, 2])
    add("rearrange_permute", lambda x: x.permute(2, 0, 3, 1), [2, 3, 4, 5])
    add("rearrange_transpose", lambda x: x.transpose(-2, -1), [2, 3, 17])
    add("rearrange_slice", lambda x: x[:, 1:-1:2], [2, 7, 3])
    add("rearrange_slice_beyond", lambda x: x[:, -3:100], [2, 7])
    add("rearrange_select", lambda x: x[:, -2], [2, 7, 3])
    add("rearrange_narrow", lambda x: torch.narrow(x, 0, 1, 2), [4, 3])
    add("rearrange_chunk", lambda x: torch.chunk(x, 3, 1)[2], [2, 8, 3])
    add("rearrange_flip", lambda x: torch.flip(x, (0, 2)), [2, 3, 5])
    add("rearrange_roll", lambda x: torch.roll(x, 2, 1), [2, 5, 3])
    add("rearrange_roll_all", lambda x: torch.roll(x, -4), [3, 5])
    add("rearrange_expand", lambda x: x.expand(3, -1, 4), [5, 1])
    add("place_pad", lambda x: F.pad(x, (1, 2, 0, 3), value=-0.5), [2, 3, 4])
    add("place_stack", lambda x, y, z: torch.stack((x, y, z), -2), [2, 5], [2, 5], [2, 5])

    add("index_gather", lambda x, i: torch.gather(x, 1, i), [4, 5, 3], indices([4, 7, 2], 5))
    add("index_select", lambda x, i: torch.index_select(x, 1, i), [4, 5, 3], indices([6], 5))
    add("index_scatter_add", lambda x, i, s: torch.scatter_add(x, 0, i, s), [4, 5],
        indices([6, 5], 4), [6, 5])
    add("index_masked_fill", lambda x, m: x.masked_fill(m, -2.5), [3, 4, 5], booleans([4, 1]))

    add("formula_normalize", lambda x: F.normalize(x, dim=1), [3, 7, 2])
    add("formula_cosine", lambda a, b: F.cosine_similarity(a, b, dim=-1), [3, 7], [3, 7])
    add("formula_distance", lambda a, b: F.pairwise_distance(a, b), [5, 7], [5, 7])
    return c
