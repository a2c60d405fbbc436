"""Attention: multihead_attention, and the transformer's encoder."""

import math
from collections import OrderedDict

import torch
from torch import nn

from layers import Case, booleans, constant


class Attention(nn.MultiheadAttention):
    """Masks follow query, key and value, or the single input, in the order of their names."""

    def __init__(self, *args, masks=(), weights=False, causal=False, average=True, **options):
        super().__init__(*args, **options)
        self.masks, self.weights, self.causal, self.average = masks, weights, causal, average

    def forward(self, *inputs):
        count = len(inputs) - len(self.masks)
        query, key, value = inputs[:3] if count == 3 else inputs[:1] * 3
        masks = dict(zip(self.masks, inputs[count:]))
        if self.causal:
            batch = 1 if query.dim() == 2 or self.batch_first else 0
            steps = [x.shape[0 if x.dim() == 2 or not batch else 1] for x in (query, key)]
            masks["attn_mask"] = torch.ones(steps, dtype=torch.bool).triu(1)
        y, weights = super().forward(query, key, value, need_weights=self.weights,
                                     average_attn_weights=self.average, **masks)
        return (y, weights) if self.weights else y


class Sinusoids(nn.Module):
    def __init__(self, batch_first=False):
        super().__init__()
        self.batch_first = batch_first

    def forward(self, x):
        along = 1 if x.dim() == 3 and self.batch_first else 0
        length, width = x.shape[along], x.shape[-1]
        table = torch.tensor([[(math.sin, math.cos)[j % 2](i / 10000 ** (2 * (j // 2) / width))
                               for j in range(width)] for i in range(length)], dtype=torch.float64)
        return x + (table if along == 1 or x.dim() == 2 else table.unsqueeze(1)).to(x.dtype)


class Learned(nn.Embedding):
    def __init__(self, *args, batch_first=False):
        super().__init__(*args)
        self.batch_first = batch_first

    def forward(self, x):
        along = 1 if x.dim() == 3 and self.batch_first else 0
        rows = super().forward(torch.arange(x.shape[along]))
        return x + (rows if along == 1 or x.dim() == 2 else rows.unsqueeze(1))


def attention(inputs, *args, **options):
    return Case(lambda: Attention(*args, **options), inputs, options=written(args, options))


def written(args, options):
    return ", ".join([str(a) for a in args] + [f"{k}={v}" for k, v in options.items()])


def layer(inputs, *args, call=None, **options):
    return Case(lambda: nn.TransformerEncoderLayer(*args, dropout=0.0, **options), inputs, call=call,
                options=written(args, options))


def encoder(inputs, layers, *args, norm=False, call=None, **options):
    def make():
        one = nn.TransformerEncoderLayer(*args, dropout=0.0, **options)
        return nn.TransformerEncoder(one, layers, nn.LayerNorm(args[0]) if norm else None)
    return Case(make, inputs, call=call, options=written((layers, *args), {"norm": norm, **options}))


def decoder_layer(inputs, *args, causal=False, masks=(), **options):
    def call(m, tgt, memory, *given):
        mask = torch.ones(len_of(tgt, options), len_of(tgt, options), dtype=torch.bool).triu(1)
        return m(tgt, memory, **{"tgt_mask": mask if causal else None, **dict(zip(masks, given))})
    return Case(lambda: nn.TransformerDecoderLayer(*args, dropout=0.0, **options), inputs, call=call,
                options=written(args, {"causal": causal, **options}))


def decoder(inputs, layers, *args, norm=False, **options):
    def make():
        one = nn.TransformerDecoderLayer(*args, dropout=0.0, **options)
        return nn.TransformerDecoder(one, layers, nn.LayerNorm(args[0]) if norm else None)
    return Case(make, inputs, options=written((layers, *args), {"norm": norm, **options}))


def transformer(inputs, *args, causal=False, masks=(), **options):
    def call(m, src, tgt, *given):
        mask = torch.ones(len_of(tgt, options), len_of(tgt, options), dtype=torch.bool).triu(1)
        return m(src, tgt, **{"tgt_mask": mask if causal else None, **dict(zip(masks, given))})
    return Case(lambda: nn.Transformer(*args, dropout=0.0, **options), inputs, call=call,
                options=written(args, {"causal": causal, **options}))


def len_of(x, options):
    return x.shape[1 if options.get("batch_first") else 0]


PADDING = ("key_padding_mask",)
MASK = ("attn_mask",)
BOTH = PADDING + MASK


def cases():
    c = OrderedDict()
    c["mha_self"] = attention([[5, 2, 6]], 6, 3)
    c["mha_self_batch_first"] = attention([[2, 5, 6]], 6, 2, batch_first=True)
    c["mha_self_unbatched"] = attention([[5, 6]], 6, 2)
    c["mha_one_head"] = attention([[7, 1, 5]], 5, 1, bias=False)
    c["mha_wide"] = attention([[18, 1, 18]], 18, 2)
    of_seven = [[5, 2, 6], [7, 2, 6], [7, 2, 6]]
    c["mha_cross"] = attention(of_seven, 6, 2)
    c["mha_cross_no_bias"] = attention(of_seven, 6, 2, bias=False)
    of_three = [[2, 5, 6], [2, 3, 6], [2, 3, 6]]
    c["mha_cross_batch_first"] = attention(of_three, 6, 3, batch_first=True)
    c["mha_cross_unbatched"] = attention([[5, 6], [3, 6], [3, 6]], 6, 3)
    c["mha_kdim_vdim"] = attention([[4, 3, 6], [5, 3, 5], [5, 3, 7]], 6, 2, kdim=5, vdim=7)
    c["mha_kdim"] = attention([[2, 4, 6], [2, 5, 5], [2, 5, 6]], 6, 2, kdim=5, bias=False,
                              batch_first=True)
    c["mha_weights"] = attention([[5, 2, 6], [4, 2, 6], [4, 2, 6]], 6, 3, weights=True)
    c["mha_weights_unbatched"] = attention([[5, 6]], 6, 3, weights=True)
    c["mha_causal"] = attention([[5, 3, 6]], 6, 2, causal=True)
    longer = [[2, 6, 6], [2, 4, 6], [2, 4, 6]]
    c["mha_causal_longer"] = attention(longer, 6, 2, causal=True, batch_first=True)
    c["mha_causal_shorter"] = attention([[3, 6], [5, 6], [5, 6]], 6, 2, causal=True)

    padding = constant([[False, False, True, True, True], [False, True, False, False, False]])
    c["mha_padding"] = attention([[5, 2, 6], padding], 6, 2, masks=PADDING)
    c["mha_padding_batch_first"] = attention([[2, 3, 6], [2, 5, 6], [2, 5, 6], padding], 6, 2,
                                             masks=PADDING, batch_first=True)
    c["mha_padding_unbatched"] = attention([[5, 6], constant([False, False, True, False, True])],
                                           6, 2, masks=PADDING)
    square = constant([[(3 * i + j) % 4 == 1 for j in range(5)] for i in range(5)])
    c["mha_mask"] = attention([[5, 2, 6], square], 6, 2, masks=MASK)
    of_heads = constant([[[(n + 3 * i + j) % 4 == 1 for j in range(5)] for i in range(3)]
                         for n in range(4)])
    c["mha_mask_of_heads"] = attention([[3, 2, 6], [5, 2, 6], [5, 2, 6], of_heads], 6, 2, masks=MASK)
    of_heads = constant([[[(n + i + j) % 3 == 1 for j in range(3)] for i in range(3)]
                         for n in range(2)])
    c["mha_mask_unbatched"] = attention([[3, 6], of_heads], 6, 2, masks=MASK)
    c["mha_added"] = attention([[5, 2, 6], [5, 5]], 6, 2, masks=MASK)
    c["mha_added_of_heads"] = attention([[2, 3, 6], [2, 4, 6], [2, 4, 6], [4, 3, 4]], 6, 2,
                                        masks=MASK, batch_first=True)
    later = constant([[j > i for j in range(5)] for i in range(5)])
    c["mha_padding_and_mask"] = attention([[5, 2, 6], padding, later], 6, 2, masks=BOTH,
                                          weights=True)
    c["mha_padding_and_added"] = attention([[5, 2, 6], padding, [5, 5]], 6, 2, masks=BOTH)

    c["mha_all_weights"] = attention([[5, 2, 6], [4, 2, 6], [4, 2, 6]], 6, 3, weights=True, average=False)
    c["mha_all_weights_unbatched"] = attention([[5, 6]], 6, 3, weights=True, average=False)
    both = dict(add_bias_kv=True, add_zero_attn=True)
    c["mha_bias_kv"] = attention([[5, 2, 6]], 6, 2, add_bias_kv=True)
    c["mha_bias_kv_unbatched"] = attention([[5, 6], [3, 6], [3, 6]], 6, 2, add_bias_kv=True)
    c["mha_zero_attn"] = attention(of_three, 6, 3, batch_first=True, add_zero_attn=True, bias=False)
    c["mha_bias_zero"] = attention(of_seven, 6, 2, weights=True, **both)
    c["mha_bias_zero_kdim"] = attention([[4, 3, 6], [5, 3, 5], [5, 3, 7]], 6, 2, kdim=5, vdim=7, bias=False, **both)
    c["mha_bias_zero_causal"] = attention(longer, 6, 2, causal=True, batch_first=True, **both)
    c["mha_bias_zero_masks"] = attention([[5, 2, 6], padding, square], 6, 2, masks=BOTH, weights=True,
                                         average=False, **both)
    c["mha_bias_zero_added"] = attention([[2, 3, 6], [2, 4, 6], [2, 4, 6], [4, 3, 4]], 6, 2,
                                         masks=MASK, batch_first=True, **both)

    c["layer"] = layer([[5, 4]], 4, 2, 5)
    c["layer_batch_first"] = layer([[2, 5, 6]], 6, 3, 5, batch_first=True)
    c["layer_norm_first"] = layer([[5, 2, 4]], 4, 2, 5, norm_first=True, activation="gelu",
                                  layer_norm_eps=0.1)

    def masked(m, x, mask, ignored):
        return m(x, mask, ignored)

    def padded(m, x, ignored):
        return m(x, src_key_padding_mask=ignored)

    c["layer_masks"] = layer([[5, 2, 4], square, padding], 4, 2, 5, activation="gelu", call=masked)
    c["layer_padding"] = layer([[2, 5, 4], padding], 4, 2, 5, activation="gelu", batch_first=True,
                               call=padded)
    c["encoder"] = encoder([[5, 2, 4]], 2, 4, 2, 5, activation="gelu")
    c["encoder_norm"] = encoder([[2, 5, 6]], 2, 6, 3, 5, norm=True, batch_first=True,
                                norm_first=True, activation="gelu")
    c["encoder_masks"] = encoder([[5, 2, 4], square, padding], 2, 4, 2, 5, norm=True,
                                 activation="gelu", call=masked)

    c["sinusoids"] = Case(Sinusoids, [[7, 2, 5]])
    c["sinusoids_batch_first"] = Case(lambda: Sinusoids(batch_first=True), [[2, 3, 6]],
                                      options="batch_first=True")
    c["sinusoids_unbatched"] = Case(Sinusoids, [[200, 1]])
    c["learned"] = Case(lambda: Learned(7, 5), [[4, 3, 5]], options="7, 5")
    c["learned_batch_first"] = Case(lambda: Learned(4, 5, batch_first=True), [[3, 4, 5]],
                                    options="4, 5, batch_first=True")
    c["learned_unbatched"] = Case(lambda: Learned(4, 5), [[3, 5]], options="4, 5")
    c["decoder_layer"] = decoder_layer([[5, 2, 4], [3, 2, 4]], 4, 2, 5)
    c["decoder_layer_causal"] = decoder_layer([[2, 5, 6], [2, 3, 6]], 6, 3, 5, causal=True,
                                              batch_first=True, norm_first=True, activation="gelu")
    c["decoder_layer_padding"] = decoder_layer(
        [[5, 2, 4], [3, 2, 4], constant([[False] * 4 + [True], [False] * 5]),
         constant([[False, False, True], [True, False, False]])], 4, 2, 5,
        masks=("tgt_key_padding_mask", "memory_key_padding_mask"))
    c["decoder"] = decoder([[5, 2, 4], [3, 2, 4]], 2, 4, 2, 5, norm=True, activation="gelu")
    c["transformer"] = transformer([[3, 2, 4], [5, 2, 4]], 4, 2, 1, 2, 5, activation="gelu")
    c["transformer_masks"] = transformer(
        [[2, 3, 6], [2, 5, 6], constant([[False, False, True], [True, False, False]]),
         constant([[False] * 4 + [True], [False] * 5]), constant([[False, True, False], [False] * 3])],
        6, 3, 2, 1, 5, causal=True, batch_first=True, norm_first=True, activation="gelu",
        masks=("src_key_padding_mask", "tgt_key_padding_mask", "memory_key_padding_mask"))
    of_memory = constant([[(i + 2 * j) % 4 == 1 for j in range(3)] for i in range(5)])
    c["decoder_layer_masks"] = decoder_layer(
        [[5, 2, 4], [3, 2, 4], square, of_memory, constant([[False] * 4 + [True], [False] * 5]),
         constant([[False, False, True], [True, False, False]])], 4, 2, 5, activation="gelu",
        masks=("tgt_mask", "memory_mask", "tgt_key_padding_mask", "memory_key_padding_mask"))
    c["transformer_all_masks"] = transformer(
        [[3, 2, 4], [5, 2, 4], constant([[i == j + 1 for j in range(3)] for i in range(3)]), square,
         of_memory, constant([[False, False, True], [True, False, False]]),
         constant([[False] * 4 + [True], [False] * 5]),
         constant([[False, False, True], [False] * 3])],
        4, 2, 1, 1, 5, activation="gelu",
        masks=("src_mask", "tgt_mask", "memory_mask", "src_key_padding_mask",
               "tgt_key_padding_mask", "memory_key_padding_mask"))
    return c
