"""Records reference values of PyTorch as safetensors files in this folder.

    /usr/bin/python3 test/data/record.py           write every file and the tables of README.md
    /usr/bin/python3 test/data/record.py FAMILY    write the files of one family: layers_conv
    /usr/bin/python3 test/data/record.py --check   read every file and recompute its outputs

README.md describes each file.
"""

import functools
import json
import math
import os
import re
import sys
from collections import OrderedDict

from common import (DTYPES, HERE, case_tensors, labels, read_safetensors, uniform,
                    write_safetensors)
import layers
import networks

import numpy
import torch
from torch import nn
from torch.nn import functional as F

STEPS = 10

# Chosen so that in float, too, rounding cannot change the sign of an input of ReLU or the choice of max pooling;
# check_margins() asserts it.
TRAINING_SEED = 46
LENET_SEED = 1


# --- modules -------------------------------------------------------------------------------------

class Residual(nn.Module):
    """x + conv(x); its parameters are recorded by the names they have in the convolution."""

    def __init__(self, conv):
        super().__init__()
        self.conv = conv

    def forward(self, x):
        return x + self.conv(x)


def pair(value):
    return list(value) if isinstance(value, (list, tuple)) else [value, value]


def linear(x, out_features, bias=True):
    return dict(module="linear", x=x, in_features=x[-1], out_features=out_features, bias=bias)


def conv2d(x, out_channels, kernel, stride=1, padding=0, dilation=1, groups=1, bias=True,
           module="conv2d"):
    return dict(module=module, x=x, in_channels=x[-3], out_channels=out_channels,
                kernel=pair(kernel), stride=pair(stride), padding=pair(padding),
                dilation=pair(dilation), groups=groups, bias=bias)


def max_pool2d(x, kernel, stride=None, padding=0, dilation=1, ceil_mode=False, values="uniform"):
    return dict(module="max_pool2d", x=x, kernel=pair(kernel), stride=pair(stride or kernel),
                padding=pair(padding), dilation=pair(dilation), ceil_mode=ceil_mode, values=values)


def avg_pool2d(x, kernel, stride=None, padding=0, ceil_mode=False, count_include_pad=True,
               divisor_override=None):
    return dict(module="avg_pool2d", x=x, kernel=pair(kernel), stride=pair(stride or kernel),
                padding=pair(padding), ceil_mode=ceil_mode, count_include_pad=count_include_pad,
                divisor_override=divisor_override)


def flatten(x, start_dim=1, end_dim=-1):
    return dict(module="flatten", x=x, start_dim=start_dim, end_dim=end_dim)


def pointwise(module, x, values="uniform", **options):
    return dict(module=module, x=x, values=values, **options)


def batch_norm2d(x, mode="train", eps=1e-5, momentum=0.1, affine=True, track_running_stats=True):
    return dict(module="batch_norm2d", x=x, mode=mode, num_features=x[1], eps=eps,
                momentum=momentum, affine=affine, track_running_stats=track_running_stats)


def module_cases():
    c = OrderedDict()
    c["linear_2d"] = linear([5, 13], 7)
    c["linear_1d"] = linear([13], 7)
    c["linear_3d"] = linear([2, 3, 13], 7)
    c["linear_no_bias"] = linear([5, 13], 7, bias=False)
    c["linear_one_feature"] = linear([4, 1], 1)
    c["linear_wide"] = linear([3, 33], 17)

    c["conv2d_plain"] = conv2d([2, 3, 7, 9], 4, 3)
    c["conv2d_stride"] = conv2d([2, 2, 9, 8], 3, 3, stride=2)
    c["conv2d_padding"] = conv2d([1, 3, 5, 7], 5, 3, padding=1)
    c["conv2d_dilation"] = conv2d([2, 2, 9, 10], 3, 3, dilation=2)
    c["conv2d_groups"] = conv2d([2, 4, 6, 5], 6, 3, padding=1, groups=2)
    c["conv2d_depthwise"] = conv2d([2, 5, 7, 6], 5, 3, padding=1, groups=5)
    c["conv2d_depthwise_multiplier"] = conv2d([2, 3, 6, 7], 6, 3, stride=2, groups=3)
    c["conv2d_non_square"] = conv2d([2, 3, 9, 11], 4, (3, 5), stride=(2, 1), padding=(1, 2))
    c["conv2d_non_square_dilation"] = conv2d([2, 2, 8, 9], 3, (2, 3), stride=(1, 2),
                                             padding=(0, 1), dilation=(3, 2))
    c["conv2d_no_bias"] = conv2d([3, 2, 6, 6], 3, 3, bias=False)
    c["conv2d_1x1"] = conv2d([2, 5, 4, 3], 7, 1)
    c["conv2d_1x1_stride"] = conv2d([2, 3, 5, 7], 4, 1, stride=2)
    c["conv2d_unbatched"] = conv2d([3, 7, 6], 4, 3, padding=1)
    c["conv2d_whole_input"] = conv2d([3, 2, 4, 5], 3, (4, 5))
    c["conv2d_wide"] = conv2d([1, 9, 6, 5], 17, 3, padding=1)
    c["conv2d_everything"] = conv2d([2, 4, 11, 13], 6, (3, 2), stride=(2, 3), padding=(2, 1),
                                    dilation=(2, 3), groups=2, bias=False)

    c["max_pool2d_kernel2"] = max_pool2d([2, 3, 6, 8], 2)
    c["max_pool2d_odd"] = max_pool2d([2, 2, 7, 5], 2)
    c["max_pool2d_overlap"] = max_pool2d([2, 3, 7, 9], 3, stride=2, padding=1)
    c["max_pool2d_dilation"] = max_pool2d([2, 2, 9, 8], 3, stride=1, dilation=2)
    c["max_pool2d_ceil_mode"] = max_pool2d([2, 2, 8, 6], 3, stride=2, ceil_mode=True)
    c["max_pool2d_ceil_mode_dropped"] = max_pool2d([2, 2, 5, 8], 2, stride=3, padding=1,
                                                   ceil_mode=True)
    c["max_pool2d_non_square"] = max_pool2d([2, 2, 9, 11], (2, 3), stride=(1, 2), padding=(1, 0))
    c["max_pool2d_unbatched"] = max_pool2d([3, 6, 7], 2)
    c["max_pool2d_negative"] = max_pool2d([1, 2, 5, 5], 3, stride=2, padding=1, values="negative")
    c["max_pool2d_ties"] = max_pool2d([2, 2, 7, 7], 3, stride=2, padding=1, values="integers")

    c["avg_pool2d_kernel2"] = avg_pool2d([2, 3, 6, 8], 2)
    c["avg_pool2d_overlap"] = avg_pool2d([2, 3, 7, 9], 3, stride=2, padding=1)
    c["avg_pool2d_exclude_pad"] = avg_pool2d([2, 3, 7, 9], 3, stride=2, padding=1,
                                             count_include_pad=False)
    c["avg_pool2d_divisor_override"] = avg_pool2d([2, 2, 7, 6], 3, stride=2, padding=1,
                                                  divisor_override=5)
    c["avg_pool2d_ceil_mode"] = avg_pool2d([2, 2, 8, 6], 3, stride=2, ceil_mode=True)
    c["avg_pool2d_ceil_mode_padding"] = avg_pool2d([2, 2, 8, 6], 3, stride=2, padding=1,
                                                   ceil_mode=True)
    c["avg_pool2d_ceil_mode_exclude_pad"] = avg_pool2d([2, 2, 8, 6], 3, stride=2, padding=1,
                                                       ceil_mode=True, count_include_pad=False)
    c["avg_pool2d_ceil_mode_dropped"] = avg_pool2d([2, 2, 5, 8], 2, stride=3, padding=1,
                                                   ceil_mode=True)
    c["avg_pool2d_non_square"] = avg_pool2d([2, 2, 9, 11], (2, 3), stride=(1, 2), padding=(1, 0))
    c["avg_pool2d_unbatched"] = avg_pool2d([3, 6, 7], 2)

    c["flatten_default"] = flatten([2, 3, 4, 5])
    c["flatten_2d"] = flatten([3, 5])
    c["flatten_all"] = flatten([2, 3, 5], start_dim=0)
    c["flatten_middle"] = flatten([2, 3, 4, 5], start_dim=1, end_dim=2)
    c["flatten_tail"] = flatten([2, 3, 4, 5], start_dim=-2)

    for name in ("relu", "tanh", "sigmoid"):
        c[name] = pointwise(name, [3, 5, 7])
        c[name + "_1d"] = pointwise(name, [37])
        c[name + "_extremes"] = pointwise(name, [17], values="extremes")
    for approximate in ("none", "tanh"):
        for suffix, x, values in (("", [3, 5, 7], "uniform"), ("_1d", [37], "uniform"),
                                  ("_extremes", [17], "extremes")):
            c[f"gelu_{approximate}{suffix}"] = pointwise("gelu", x, values,
                                                         approximate=approximate)
    for name in ("softmax", "log_softmax"):
        c[name + "_1d"] = pointwise(name, [9], dim=-1)
        c[name + "_2d"] = pointwise(name, [3, 7], dim=-1)
        c[name + "_3d_last"] = pointwise(name, [2, 5, 3], dim=-1)
        c[name + "_3d_dim1"] = pointwise(name, [2, 5, 3], dim=1)
        c[name + "_4d_last"] = pointwise(name, [2, 4, 3, 5], dim=-1)
        c[name + "_4d_dim1"] = pointwise(name, [2, 4, 3, 5], dim=1)
        c[name + "_large"] = pointwise(name, [4, 11], values="large", dim=-1)

    c["batch_norm2d_train"] = batch_norm2d([4, 3, 5, 3])
    c["batch_norm2d_train_options"] = batch_norm2d([3, 5, 2, 7], eps=1e-3, momentum=0.3)
    c["batch_norm2d_train_no_affine"] = batch_norm2d([4, 3, 5, 3], affine=False)
    c["batch_norm2d_train_no_tracking"] = batch_norm2d([4, 3, 5, 3], track_running_stats=False)
    c["batch_norm2d_train_cumulative"] = batch_norm2d([4, 3, 5, 3], momentum=None)
    c["batch_norm2d_eval"] = batch_norm2d([4, 3, 5, 3], mode="eval")
    c["batch_norm2d_eval_no_affine"] = batch_norm2d([4, 3, 5, 3], mode="eval", affine=False)
    c["batch_norm2d_eval_no_tracking"] = batch_norm2d([4, 3, 5, 3], mode="eval",
                                                      track_running_stats=False)

    c["residual_conv"] = conv2d([2, 3, 6, 5], 3, 3, padding=1, module="residual")
    c["residual_conv_1x1_no_bias"] = conv2d([2, 4, 3, 5], 4, 1, bias=False, module="residual")
    return c


def build_module(o, dtype):
    kind = o["module"]
    if kind == "linear":
        m = nn.Linear(o["in_features"], o["out_features"], bias=o["bias"])
    elif kind in ("conv2d", "residual"):
        m = nn.Conv2d(o["in_channels"], o["out_channels"], o["kernel"], o["stride"], o["padding"],
                      o["dilation"], o["groups"], o["bias"])
        m = Residual(m) if kind == "residual" else m
    elif kind == "max_pool2d":
        m = nn.MaxPool2d(o["kernel"], o["stride"], o["padding"], o["dilation"],
                         ceil_mode=o["ceil_mode"])
    elif kind == "avg_pool2d":
        m = nn.AvgPool2d(o["kernel"], o["stride"], o["padding"], o["ceil_mode"],
                         o["count_include_pad"], o["divisor_override"])
    elif kind == "flatten":
        m = nn.Flatten(o["start_dim"], o["end_dim"])
    elif kind == "gelu":
        m = nn.GELU(approximate=o["approximate"])
    elif kind == "softmax":
        m = nn.Softmax(dim=o["dim"])
    elif kind == "log_softmax":
        m = nn.LogSoftmax(dim=o["dim"])
    elif kind == "batch_norm2d":
        m = nn.BatchNorm2d(o["num_features"], o["eps"], o["momentum"], o["affine"],
                           o["track_running_stats"])
        m.train(o["mode"] == "train")
    else:
        m = {"relu": nn.ReLU, "tanh": nn.Tanh, "sigmoid": nn.Sigmoid}[kind]()
    return m.to(dtype)


def module_input(case, o, dtype):
    values = o.get("values", "uniform")
    if values == "extremes":
        return torch.tensor([-100, -30, -10, -5, -3, -1, -0.5, -1e-3, 0, 1e-3, 0.5, 1, 3, 5, 10,
                             30, 100], dtype=torch.float32).to(dtype)
    if values == "integers":
        return labels(case + ".x", o["x"], 3).to(dtype)
    low, high = {"uniform": (-2, 2), "negative": (-2, -1), "large": (-1000, 1000)}[values]
    return uniform(case + ".x", o["x"], dtype, low, high)


def module_state(case, o, dtype):
    """Values for every parameter and buffer that differ from neutral ones (0 or 1)."""
    state = OrderedDict()
    for name, t in build_module(o, dtype).state_dict().items():
        name = name.replace("conv.", "")
        if name == "num_batches_tracked":
            state[name] = torch.tensor(3)
        elif name == "running_var" or (name == "weight" and o["module"] == "batch_norm2d"):
            state[name] = uniform(case + name, t.shape, dtype, 0.5, 1.5)
        else:
            state[name] = uniform(case + name, t.shape, dtype, -0.5, 0.5)
    return state


def run_module(o, x, gy_of, state, dtype):
    """Forward and backward; gy_of gives the gradient of y when the shape of y is known."""
    m = build_module(o, dtype)
    inner = m.conv if o["module"] == "residual" else m
    inner.load_state_dict(state)
    x = x.clone().requires_grad_()
    y = m(x)
    gy = gy_of(list(y.shape))
    y.backward(gy)
    out = OrderedDict(gy=gy, y=y.detach(), gx=x.grad)
    for name, p in inner.named_parameters():
        out["grad." + name] = p.grad
    for name, b in inner.named_buffers():
        out["after." + name] = b.clone()
    return out


def record_modules(dtype):
    tensors, metadata = OrderedDict(), OrderedDict()
    for case, o in module_cases().items():
        x, state = module_input(case, o, dtype), module_state(case, o, dtype)
        out = run_module(o, x, lambda shape: uniform(case + ".gy", shape, dtype, -1, 1), state,
                         dtype)
        for name, t in [("x", x), *state.items(), *out.items()]:
            tensors[f"{case}/{name}"] = t
        metadata[case] = json.dumps(o)
    return tensors, metadata


def recompute_modules(tensors, metadata, dtype):
    result = OrderedDict()
    for case, text in metadata.items():
        o, t = json.loads(text), case_tensors(tensors, case)
        outputs = ("x", "gy", "y", "gx")
        state = OrderedDict((k, v) for k, v in t.items()
                            if k not in outputs and not k.startswith(("grad.", "after.")))
        for name, v in run_module(o, t["x"], lambda shape: t["gy"], state, dtype).items():
            result[f"{case}/{name}"] = v
    return result


# --- losses --------------------------------------------------------------------------------------

def cross_entropy(x, reduction="mean", label_smoothing=0.0, ignore_index=-100, ignored=False,
                  values="uniform"):
    return dict(loss="cross_entropy", x=x, reduction=reduction, label_smoothing=label_smoothing,
                ignore_index=ignore_index, ignored=ignored, values=values)


def mse_loss(x, reduction="mean"):
    return dict(loss="mse_loss", x=x, reduction=reduction)


def loss_cases():
    c = OrderedDict()
    c["cross_entropy_mean"] = cross_entropy([6, 7])
    c["cross_entropy_sum"] = cross_entropy([6, 7], "sum")
    c["cross_entropy_unbatched"] = cross_entropy([7])
    c["cross_entropy_one_row"] = cross_entropy([1, 3])
    c["cross_entropy_large"] = cross_entropy([5, 9], values="large")
    c["cross_entropy_smoothing"] = cross_entropy([6, 7], label_smoothing=0.1)
    c["cross_entropy_smoothing_sum"] = cross_entropy([6, 7], "sum", label_smoothing=0.1)
    c["cross_entropy_ignore"] = cross_entropy([9, 5], ignored=True)
    c["cross_entropy_ignore_sum"] = cross_entropy([9, 5], "sum", ignored=True)
    c["cross_entropy_ignore_class2"] = cross_entropy([9, 5], ignore_index=2, ignored=True)
    c["cross_entropy_ignore_smoothing"] = cross_entropy([9, 5], label_smoothing=0.1, ignored=True)
    c["cross_entropy_4d_mean"] = cross_entropy([2, 5, 3, 4])
    c["cross_entropy_4d_sum"] = cross_entropy([2, 5, 3, 4], "sum")
    c["cross_entropy_4d_ignore_smoothing"] = cross_entropy([2, 5, 3, 4], label_smoothing=0.1,
                                                           ignore_index=255, ignored=True)
    c["mse_loss_mean"] = mse_loss([5, 3])
    c["mse_loss_sum"] = mse_loss([5, 3], "sum")
    c["mse_loss_1d"] = mse_loss([7])
    c["mse_loss_4d"] = mse_loss([2, 3, 4, 5])
    return c


def loss_target(case, o, dtype):
    if o["loss"] == "mse_loss":
        return uniform(case + ".target", o["x"], dtype)
    shape = o["x"][:1] + o["x"][2:] if len(o["x"]) > 1 else []
    target = labels(case + ".target", shape, o["x"][1 if len(o["x"]) > 1 else 0])
    if o["ignored"]:
        target.view(-1)[1::4] = o["ignore_index"]
    return target


def run_loss(o, x, target):
    x = x.clone().requires_grad_()
    if o["loss"] == "mse_loss":
        loss = F.mse_loss(x, target, reduction=o["reduction"])
    else:
        loss = F.cross_entropy(x, target, reduction=o["reduction"],
                               ignore_index=o["ignore_index"],
                               label_smoothing=o["label_smoothing"])
    loss.backward()
    return OrderedDict(loss=loss.detach(), gx=x.grad)


def record_losses(dtype):
    tensors, metadata = OrderedDict(), OrderedDict()
    for case, o in loss_cases().items():
        high = 1000 if o.get("values") == "large" else 2
        x = uniform(case + ".x", o["x"], dtype, -high, high)
        target = loss_target(case, o, dtype)
        for name, t in [("x", x), ("target", target), *run_loss(o, x, target).items()]:
            tensors[f"{case}/{name}"] = t
        metadata[case] = json.dumps(o)
    return tensors, metadata


def recompute_losses(tensors, metadata, dtype):
    result = OrderedDict()
    for case, text in metadata.items():
        t = case_tensors(tensors, case)
        for name, v in run_loss(json.loads(text), t["x"], t["target"]).items():
            result[f"{case}/{name}"] = v
    return result


# --- training ------------------------------------------------------------------------------------

SGD = dict(optimizer="sgd", momentum=0.0, dampening=0.0, weight_decay=0.0, nesterov=False)
ADAM = dict(lr=1e-2, betas=[0.9, 0.999], eps=1e-8)

OPTIMIZERS = OrderedDict(
    sgd=dict(SGD, lr=0.1),
    sgd_momentum=dict(SGD, lr=0.05, momentum=0.9, dampening=0.1, weight_decay=1e-2),
    sgd_nesterov=dict(SGD, lr=0.05, momentum=0.9, nesterov=True),
    adam=dict(ADAM, optimizer="adam", weight_decay=0.0, amsgrad=False),
    adam_amsgrad=dict(ADAM, optimizer="adam", weight_decay=1e-2, amsgrad=True),
    adamw=dict(ADAM, optimizer="adamw", weight_decay=1e-2, amsgrad=False))


def make_optimizer(o, parameters):
    o = dict(o)
    kind = {"sgd": torch.optim.SGD, "adam": torch.optim.Adam,
            "adamw": torch.optim.AdamW}[o.pop("optimizer")]
    if "betas" in o:
        o["betas"] = tuple(o["betas"])
    return kind(parameters, **o)


def make_cnn():
    # conv1 has no bias: before a batch norm its gradient is rounding noise, which Adam would scale to whole steps of
    # lr.
    return nn.Sequential(OrderedDict(
        conv1=nn.Conv2d(1, 4, 3, padding=1, bias=False), bn1=nn.BatchNorm2d(4), relu=nn.ReLU(),
        pool=nn.MaxPool2d(2), conv2=nn.Conv2d(4, 6, 3), relu2=nn.ReLU(), flatten=nn.Flatten(),
        fc1=nn.Linear(6 * 2 * 2, 10), tanh=nn.Tanh(), fc2=nn.Linear(10, 3)))


def make_mlp():
    return nn.Sequential(nn.Linear(12, 16), nn.Tanh(), nn.Linear(16, 5))


def initial_state(module, key, dtype):
    """Values within PyTorch's bounds, drawn from this script's generator."""
    state = OrderedDict()
    shapes = {name: t.shape for name, t in module.state_dict().items()}
    for name, t in module.state_dict().items():
        owner = name.rsplit(".", 1)[0]
        if owner.startswith("bn"):
            state[name] = t.clone() if t.dtype == torch.int64 else t.to(dtype)
        else:
            bound = 1 / math.sqrt(math.prod(shapes[owner + ".weight"][1:]))
            state[name] = uniform(f"{key}.{name}", t.shape, dtype, -bound, bound)
    return state


def train(module, state, optimizer, loss_of, xs, targets, dtype, watch=None):
    """The losses of the steps, the first step's gradients and the state after the last step."""
    module = module.to(dtype)
    module.load_state_dict(state)
    if watch:
        watch(module)
    step, losses, gradients = make_optimizer(optimizer, module.parameters()), [], OrderedDict()
    for x, target in zip(xs, targets):
        step.zero_grad()
        loss = loss_of(module(x), target)
        loss.backward()
        if not losses:
            for name, p in module.named_parameters():
                gradients[name] = p.grad.clone()
        losses.append(loss.detach())
        step.step()
    return torch.stack(losses), gradients, module.state_dict()


def training_batches(seed, dtype):
    """Noise with a bright band whose height depends on the class."""
    target = labels(f"training.target.{seed}", [STEPS, 8], 3)
    x = uniform(f"training.x.{seed}", [STEPS, 8, 1, 8, 8], torch.float32, -1, 1)
    for s in range(STEPS):
        for n in range(8):
            row = 2 * int(target[s, n])
            x[s, n, 0, row:row + 3] += 0.75
    return x.to(dtype), target


def run_training(initial, xs, targets, dtype, watch=None):
    result = OrderedDict()
    for case, o in OPTIMIZERS.items():
        losses, gradients, final = train(make_cnn(), initial, o, F.cross_entropy, xs, targets,
                                         dtype, watch)
        result[case + "/losses"] = losses
        for name, t in gradients.items():
            result[f"{case}/grad.{name}"] = t
        for name, t in final.items():
            result[f"{case}/final.{name}"] = t
    return result


def record_training(dtype, seed=TRAINING_SEED, watch=None):
    initial = initial_state(make_cnn(), f"training.{seed}", dtype)
    xs, targets = training_batches(seed, dtype)
    tensors = OrderedDict((f"initial/{name}", t) for name, t in initial.items())
    tensors.update({"batches/x": xs, "batches/target": targets})
    tensors.update(run_training(initial, xs, targets, dtype, watch))
    return tensors, OrderedDict((k, json.dumps(o)) for k, o in OPTIMIZERS.items())


def recompute_training(tensors, metadata, dtype):
    return run_training(case_tensors(tensors, "initial"), tensors["batches/x"],
                        tensors["batches/target"], dtype)


def watch_margins(margins):
    """Records how near inputs of ReLU come to 0, and the two largest of a max pooling window to each other."""
    def before_relu(_, inputs):
        margins.append(inputs[0].abs().min().item())

    def before_pool(_, inputs):
        n, c, h, w = inputs[0].shape
        windows = inputs[0].reshape(n, c, h // 2, 2, w // 2, 2).permute(0, 1, 2, 4, 3, 5)
        top = windows.reshape(-1, 4).sort(dim=1, descending=True).values
        # A window of zeros passes no gradient on, whichever element is picked.
        margins.append((top[:, 0] - top[:, 1])[top[:, 0] > 0].min().item())

    def watch(module):
        for m in module.modules():
            if isinstance(m, (nn.ReLU, nn.MaxPool2d)):
                m.register_forward_pre_hook(
                    before_relu if isinstance(m, nn.ReLU) else before_pool)
    return watch


def distance(a, b):
    """The greatest difference relative to the greatest magnitude in the tensor."""
    if b.numel() == 0:
        return 0.0
    scale = b.abs().max().item()
    return (a.double() - b.double()).abs().max().item() / scale if scale else a.abs().max().item()


def training_margins(seed):
    """The smallest such distance, and the difference between the results in float and double."""
    margins = []
    wide, _ = record_training(torch.float64, seed, watch_margins(margins))
    narrow, _ = record_training(torch.float32, seed)
    apart = max(distance(narrow[k], wide[k]) for k in wide if "final." in k or "losses" in k)
    return min(margins), apart


def check_margins():
    margin, apart = training_margins(TRAINING_SEED)
    print(f"training: smallest margin {margin:.1e}, float from double {apart:.1e}")
    if margin < 1e-5 or apart > 2e-6:
        raise SystemExit("training: a decision is too near to a tie; take another TRAINING_SEED")
    margin, apart = lenet_margins(LENET_SEED)
    print(f"lenet: smallest margin {margin:.1e}, float from double {apart:.1e}")
    if margin < 1e-5 or apart > 2e-6:
        raise SystemExit("lenet: a decision is too near to a tie; take another LENET_SEED")
    networks.check_margins()


# --- data parallel -------------------------------------------------------------------------------

DATA_PARALLEL = OrderedDict(
    mse=dict(SGD, lr=0.1, momentum=0.9, loss="mse_loss"),
    cross_entropy=dict(SGD, lr=0.1, momentum=0.9, loss="cross_entropy"))


def run_data_parallel(initial, xs, targets, dtype):
    result = OrderedDict()
    for case, o in DATA_PARALLEL.items():
        o = dict(o)
        loss_of = getattr(F, o.pop("loss"))
        losses, gradients, final = train(make_mlp(), initial, o, loss_of, xs, targets[case], dtype)
        result[case + "/losses"] = losses
        for name, t in gradients.items():
            result[f"{case}/grad.{name}"] = t
        for name, t in final.items():
            result[f"{case}/final.{name}"] = t
    return result


def record_data_parallel(dtype):
    initial = initial_state(make_mlp(), "data_parallel", dtype)
    xs = uniform("data_parallel.x", [STEPS, 16, 12], dtype)
    targets = dict(mse=uniform("data_parallel.mse", [STEPS, 16, 5], dtype, -1, 1),
                   cross_entropy=labels("data_parallel.classes", [STEPS, 16], 5))
    tensors = OrderedDict((f"initial/{name}", t) for name, t in initial.items())
    tensors["batches/x"] = xs
    for case, t in targets.items():
        tensors[case + "/target"] = t
    tensors.update(run_data_parallel(initial, xs, targets, dtype))
    return tensors, OrderedDict((k, json.dumps(o)) for k, o in DATA_PARALLEL.items())


def recompute_data_parallel(tensors, metadata, dtype):
    targets = {case: tensors[case + "/target"] for case in DATA_PARALLEL}
    return run_data_parallel(case_tensors(tensors, "initial"), tensors["batches/x"], targets,
                             dtype)


# --- state dicts ---------------------------------------------------------------------------------

LENET_FILE = "lenet_state_dict_f32.safetensors"


def make_lenet():
    return nn.Sequential(OrderedDict(
        conv1=nn.Conv2d(1, 6, 5, padding=2), relu1=nn.ReLU(), pool1=nn.MaxPool2d(2),
        conv2=nn.Conv2d(6, 16, 5), relu2=nn.ReLU(), pool2=nn.MaxPool2d(2), flatten=nn.Flatten(),
        fc1=nn.Linear(400, 120), relu3=nn.ReLU(), fc2=nn.Linear(120, 84), relu4=nn.ReLU(),
        fc3=nn.Linear(84, 10)))


def run_lenet(state, x, target, dtype, watch=None):
    module = make_lenet().to(dtype)
    module.load_state_dict(OrderedDict((k, v.to(dtype)) for k, v in state.items()))
    if watch:
        watch(module)
    logits = module(x)
    loss = F.cross_entropy(logits, target)
    loss.backward()
    return OrderedDict([("lenet/logits", logits.detach()), ("lenet/loss", loss.detach()),
                        ("lenet/grad.fc3.bias", module.fc3.bias.grad),
                        ("lenet/grad.conv1.weight", module.conv1.weight.grad)])


def lenet_state(seed=LENET_SEED):
    return initial_state(make_lenet(), f"lenet.{seed}", torch.float32)


def record_state_dicts(dtype, seed=LENET_SEED, watch=None):
    x = uniform(f"lenet.x.{seed}", [2, 1, 28, 28], dtype, 0, 1)
    target = torch.tensor([3, 7])
    tensors = OrderedDict([("lenet/x", x), ("lenet/target", target)])
    tensors.update(run_lenet(lenet_state(seed), x, target, dtype, watch))
    return tensors, {"lenet": json.dumps(dict(state_dict=LENET_FILE))}


def recompute_state_dicts(tensors, metadata, dtype):
    state, _ = read_safetensors(os.path.join(HERE, LENET_FILE))
    return run_lenet(state, tensors["lenet/x"], tensors["lenet/target"], dtype)


def lenet_margins(seed):
    margins = []
    wide, _ = record_state_dicts(torch.float64, seed, watch_margins(margins))
    narrow, _ = record_state_dicts(torch.float32, seed)
    return min(margins), max(distance(narrow[k], wide[k]) for k in wide)


# --- initialisation ------------------------------------------------------------------------------

INIT_CASES = OrderedDict([
    ("linear<10, 6>", lambda: nn.Linear(10, 6)),
    ("linear<400, 120>", lambda: nn.Linear(400, 120)),
    ("conv2d<1, 6, kernel<5>>", lambda: nn.Conv2d(1, 6, 5)),
    ("conv2d<8, 16, kernel<3>>", lambda: nn.Conv2d(8, 16, 3)),
    ("conv2d<8, 16, kernel<3>, groups<4>>", lambda: nn.Conv2d(8, 16, 3, groups=4)),
    ("conv2d<3, 8, kernel<3, 5>>", lambda: nn.Conv2d(3, 8, (3, 5)))])


def init_table():
    """The bounds; checks by many draws of PyTorch that weight and bias are uniform within them."""
    lines = ["| module | fan_in | bound of weight and bias | standard deviation |",
             "|---|---|---|---|"]
    torch.manual_seed(1)
    for name, make in INIT_CASES.items():
        fan_in = math.prod(make().weight.shape[1:])
        bound = 1 / math.sqrt(fan_in)
        for draws in (torch.cat([getattr(make(), p).detach().double().flatten()
                                 for _ in range(2000)]) for p in ("weight", "bias")):
            # float rounds the bound itself, hence the slack of one part in a million.
            assert bound * 0.99 < draws.abs().max() <= bound * (1 + 1e-6), name
            assert abs(draws.std() * math.sqrt(3) / bound - 1) < 0.02, name
            assert abs(draws.mean()) < 0.02 * bound, name
        lines.append(f"| `{name}` | {fan_in} | {bound:.17g} | {bound / math.sqrt(3):.17g} |")
    return "\n".join(lines)


# --- files ---------------------------------------------------------------------------------------

FAMILIES = OrderedDict(
    modules=(record_modules, recompute_modules), losses=(record_losses, recompute_losses),
    training=(record_training, recompute_training),
    data_parallel=(record_data_parallel, recompute_data_parallel),
    state_dicts=(record_state_dicts, recompute_state_dicts),
    networks=(networks.record, networks.recompute))
FAMILIES.update((area, (functools.partial(layers.record, area),
                        functools.partial(layers.recompute, area))) for area in layers.areas())

OWN_KEYS = ("family", "recorded_with")


def recorded_with():
    return f"PyTorch {torch.__version__}, NumPy {numpy.__version__}"


def shape_text(tensors, keys):
    return ", ".join(f"`{k}` {list(tensors[k].shape)}" for k in keys)


def case_tables(family):
    """The README's list of a family's cases, read from its file."""
    tensors, metadata = read_safetensors(os.path.join(HERE, family + "_f64.safetensors"))
    lines = []
    for case, text in metadata.items():
        if case in OWN_KEYS:
            continue
        t = case_tensors(tensors, case)
        lines.append(f"- `{case}`: `{text}`")
        if family in ("modules", "losses"):
            lines.append(f"  {shape_text(t, t)}")
    return "\n".join(lines)


def file_table():
    lines = ["| file | bytes | tensors |", "|---|---|---|"]
    for name in sorted(n for n in os.listdir(HERE) if n.endswith(".safetensors")):
        path = os.path.join(HERE, name)
        lines.append(f"| `{name}` | {os.path.getsize(path)} | {len(read_safetensors(path)[0])} |")
    return "\n".join(lines)


def write_readme():
    path = os.path.join(HERE, "README.md")
    with open(path, encoding="utf-8") as f:
        text = f.read()
    parts = {family: case_tables(family) for family in FAMILIES
             if family != "state_dicts" and family not in layers.areas()}
    parts["layers"] = "\n".join(f"### `{area}`\n\n{case_tables(area)}\n" for area in layers.areas())
    parts.update(files=file_table(), init=init_table(), versions=recorded_with() + ".")
    for name, part in parts.items():
        text, count = re.subn(rf"(<!-- {name} -->\n).*?(<!-- end -->)",
                              lambda m, part=part: m.group(1) + part + "\n" + m.group(2), text,
                              flags=re.DOTALL)
        assert count == 1, name
    with open(path, "w", encoding="utf-8") as f:
        f.write(text)


def record_family(family):
    for suffix, dtype in DTYPES.items():
        tensors, cases = FAMILIES[family][0](dtype)
        metadata = dict(family=family, recorded_with=recorded_with(), **cases)
        write_safetensors(os.path.join(HERE, f"{family}_{suffix}.safetensors"), tensors, metadata)


def record():
    check_margins()
    write_safetensors(os.path.join(HERE, LENET_FILE), lenet_state(), {"format": "pt"})
    networks.write_state_dicts()
    for family in FAMILIES:
        record_family(family)
    write_readme()
    print(file_table())


def check():
    """Reads each file, computes its outputs from its inputs and compares the two."""
    failed = False
    check_margins()
    for family, (_, recompute) in FAMILIES.items():
        for suffix, dtype in DTYPES.items():
            path = os.path.join(HERE, f"{family}_{suffix}.safetensors")
            tensors, metadata = read_safetensors(path)
            cases = OrderedDict((k, v) for k, v in metadata.items() if k not in OWN_KEYS)
            worst, where, count = 0.0, "", 0
            for key, value in recompute(tensors, cases, dtype).items():
                stored, count = tensors[key], count + 1
                same = stored.shape == value.shape and stored.dtype == value.dtype
                apart = distance(value, stored) if same else math.inf
                if not apart <= worst:
                    worst, where = apart, key
            limit = 1e-12 if dtype == torch.float64 else 1e-5
            failed |= not worst <= limit
            print(f"{family}_{suffix}: {count} outputs, worst difference {worst:.1e} {where}")
    if failed:
        raise SystemExit("the files do not agree with this PyTorch")


def main():
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    torch.backends.mkldnn.enabled = False
    if sys.argv[1:] == ["--check"]:
        check()
    elif not sys.argv[1:]:
        record()
    elif set(sys.argv[1:]) <= set(FAMILIES):
        for family in sys.argv[1:]:
            record_family(family)
    else:
        raise SystemExit(__doc__)


if __name__ == "__main__":
    main()
