"""The adaptive softmax: log_prob of one input, output of an input and its targets."""

from collections import OrderedDict

from torch import nn

from layers import Case, constant, indices


def cases():
    c = OrderedDict()
    for key, args, options in (("", (9, 12, [3, 7]), {}), ("_bias", (5, 8, [2]), dict(head_bias=True, div_value=2.5)),
                               ("_three", (8, 20, [4, 9, 13]), dict(div_value=2.0))):
        def make(args=args, options=options):
            return nn.AdaptiveLogSoftmaxWithLoss(*args, **options)
        text = ", ".join([str(a) for a in args] + [f"{k}={v}" for k, v in options.items()])
        c["log_prob" + key] = Case(make, [[6, args[0]]], call=lambda m, x: m.log_prob(x), options=text)
        c["output" + key] = Case(make, [[11, args[0]], indices([11], args[1])], call=lambda m, x, t: m(x, t).output,
                                 options=text)
    c["output_of_the_head"] = Case(lambda: nn.AdaptiveLogSoftmaxWithLoss(4, 6, [3]), [[3, 4], constant([2, 0, 1])],
                                   call=lambda m, x, t: m(x, t).output, options="4, 6, [3]")
    return c
