"""Whole networks, most of them equivalents of those in examples/networks: state dicts as users of
PyTorch save them, and the outputs, losses and gradients of the networks."""

import functools
import json
import math
import os
from collections import OrderedDict

from common import HERE, case_tensors, labels, read_safetensors, uniform, write_safetensors

import torch
from torch import nn
from torch.nn import functional as F


# --- the networks --------------------------------------------------------------------------------

def lenet(conv1, conv2, fc1, fc2):
    """record.py's LeNet with other widths."""
    return nn.Sequential(OrderedDict(
        conv1=nn.Conv2d(1, conv1, 5, padding=2), relu1=nn.ReLU(), pool1=nn.MaxPool2d(2),
        conv2=nn.Conv2d(conv1, conv2, 5), relu2=nn.ReLU(), pool2=nn.MaxPool2d(2),
        flatten=nn.Flatten(), fc1=nn.Linear(conv2 * 25, fc1), relu3=nn.ReLU(),
        fc2=nn.Linear(fc1, fc2), relu4=nn.ReLU(), fc3=nn.Linear(fc2, 10)))


class BasicBlock(nn.Module):
    """torchvision.models.resnet.BasicBlock."""

    def __init__(self, inplanes, planes, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(inplanes, planes, 3, stride=stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(planes)
        self.relu = nn.ReLU()
        self.conv2 = nn.Conv2d(planes, planes, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(planes)
        self.downsample = None
        if stride != 1 or inplanes != planes:
            self.downsample = nn.Sequential(
                nn.Conv2d(inplanes, planes, 1, stride=stride, bias=False), nn.BatchNorm2d(planes))

    def forward(self, x):
        h = self.relu(self.bn1(self.conv1(x)))
        return self.relu(self.bn2(self.conv2(h)) + (self.downsample(x) if self.downsample else x))


class ResNet18(nn.Module):
    """torchvision.models.resnet18 with `width` instead of 64 channels."""

    def __init__(self, channels, classes, width):
        super().__init__()
        self.conv1 = nn.Conv2d(channels, width, 7, stride=2, padding=3, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.relu = nn.ReLU()
        self.maxpool = nn.MaxPool2d(3, stride=2, padding=1)
        planes = width
        for i in range(4):
            first = BasicBlock(planes, width << i, 1 if i == 0 else 2)
            planes = width << i
            setattr(self, f"layer{i + 1}", nn.Sequential(first, BasicBlock(planes, planes, 1)))
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(planes, classes)

    def forward(self, x):
        h = self.maxpool(self.relu(self.bn1(self.conv1(x))))
        h = self.layer4(self.layer3(self.layer2(self.layer1(h))))
        return self.fc(torch.flatten(self.avgpool(h), 1))


class Forecaster(nn.Module):
    def __init__(self, features, outputs, hidden, layers):
        super().__init__()
        self.lstm = nn.LSTM(features, hidden, layers, batch_first=True)
        self.head = nn.Linear(hidden, outputs)

    def forward(self, x, *state):
        y, (h, c) = self.lstm(x, state or None)
        return self.head(y), h, c


class LanguageModel(nn.Module):
    def __init__(self, symbols, length, width, heads, inner, layers):
        super().__init__()
        self.embedding = nn.Embedding(symbols, width)
        self.positions = nn.Embedding(length, width)
        layer = nn.TransformerEncoderLayer(width, heads, inner, dropout=0.0, batch_first=True,
                                           norm_first=True)
        self.encoder = nn.TransformerEncoder(layer, layers, nn.LayerNorm(width))
        self.head = nn.Linear(width, symbols)

    def forward(self, x):
        length = x.shape[1]
        later = torch.ones(length, length, dtype=torch.bool).triu(1)
        h = self.embedding(x) + self.positions(torch.arange(length))
        return self.head(self.encoder(h, later)).flatten(0, 1)


# --- the cases -----------------------------------------------------------------------------------

# Chosen so that in float, too, rounding cannot change the sign of an input of ReLU or the choice of max pooling;
# check_margins() asserts it.
SEEDS = dict(small_lenet=1, resnet18=20, forecaster=1, language_model=1)

OPTIONS = OrderedDict(
    small_lenet=dict(conv1=3, conv2=5, fc1=17, fc2=13),
    resnet18=dict(channels=3, classes=5, width=2),
    forecaster=dict(features=3, outputs=2, hidden=7, layers=2),
    language_model=dict(symbols=13, length=9, width=12, heads=3, inner=20, layers=2))
MAKE = dict(small_lenet=lenet, resnet18=ResNet18, forecaster=Forecaster,
            language_model=LanguageModel)


def make(name):
    return MAKE[name](**OPTIONS[name])


def state_file(name):
    return f"{name}_state_dict_f32.safetensors"


def new_state(name, seed):
    """Random values for every parameter and buffer that differ from neutral ones (0 or 1). Biases are
    positive, so that fewer inputs of ReLU are near 0."""
    state = OrderedDict()
    for key, t in make(name).state_dict().items():
        draw = functools.partial(uniform, f"{name}.{seed}.{key}", t.shape, torch.float32)
        if not t.is_floating_point():
            state[key] = torch.tensor(3)
        elif key.endswith("running_var") or (t.dim() == 1 and key.endswith("weight")):
            state[key] = draw(0.5, 1.5)
        elif t.dim() == 1:
            state[key] = draw(0, 1)
        else:
            bound = math.sqrt(3 / math.prod(t.shape[1:]))
            state[key] = draw(-bound, bound)
    return state


IMAGES = dict(small_lenet=[3, 1, 28, 28], resnet18=[4, 3, 33, 33])


def new_inputs(name, seed, dtype):
    draw = functools.partial(uniform, dtype=dtype, low=-2, high=2)
    key = f"{name}.{seed}"
    if name in IMAGES:
        return OrderedDict(pixels=labels(key + ".x", IMAGES[name], 256).to(torch.uint8),
                           target=labels(key + ".t", IMAGES[name][:1], 5))
    if name == "forecaster":
        return OrderedDict(x=draw(key + ".x", [3, 6, 3]), target=draw(key + ".t", [3, 6, 2]),
                           h=uniform(key + ".h", [2, 3, 7], dtype, -1, 1),
                           c=draw(key + ".c", [2, 3, 7]), gy=draw(key + ".gy", [3, 6, 2]),
                           gh=draw(key + ".gh", [2, 3, 7]), gc=draw(key + ".gc", [2, 3, 7]))
    return OrderedDict(x=labels(key + ".x", [3, 7], 13), target=labels(key + ".t", [21], 13))


def gradients(module, prefix):
    return OrderedDict((prefix + key, p.grad.clone()) for key, p in module.named_parameters())


def run(name, state, inputs, dtype, watch=None):
    module = make(name).to(dtype)
    module.load_state_dict(OrderedDict((k, v.to(dtype) if v.is_floating_point() else v)
                                       for k, v in state.items()))
    if watch:
        watch(module)
    out = OrderedDict()
    if name in IMAGES:
        x = inputs["pixels"].to(dtype) / 64 - 2
        module.eval()
        out["y_eval"] = module(x).detach()
        module.train()
    else:
        x = inputs["x"].clone()
    if name == "forecaster":
        x.requires_grad_()
    y = module(x)
    if name == "forecaster":
        y, out["h_n"], out["c_n"] = y
    loss = (F.mse_loss if name == "forecaster" else F.cross_entropy)(y, inputs["target"])
    loss.backward()
    out.update(y=y, loss=loss)
    out.update(gradients(module, "grad."))
    if name == "forecaster":
        out["gx"] = x.grad
    for key, b in module.named_buffers():
        out["after." + key] = b.clone()
    if name == "forecaster":
        out.update(run_with_state(module, inputs))
    return OrderedDict((k, v.detach()) for k, v in out.items())


def run_with_state(module, inputs):
    """A run with a given initial state, and the gradients of all outputs."""
    module.zero_grad()
    given = [inputs[k].clone().requires_grad_() for k in ("x", "h", "c")]
    made = module(*given)
    torch.autograd.backward(made, [inputs[k] for k in ("gy", "gh", "gc")])
    out = OrderedDict(zip(("state.y", "state.h_n", "state.c_n"), made))
    out.update(zip(("state.gx", "state.gh_0", "state.gc_0"), (t.grad for t in given)))
    out.update(gradients(module, "state.grad."))
    return out


# --- what record.py asks for ---------------------------------------------------------------------

def write_state_dicts():
    for name, seed in SEEDS.items():
        write_safetensors(os.path.join(HERE, state_file(name)), new_state(name, seed),
                          {"format": "pt"})


def record(dtype):
    tensors, metadata = OrderedDict(), OrderedDict()
    for name, seed in SEEDS.items():
        inputs = new_inputs(name, seed, dtype)
        out = run(name, new_state(name, seed), inputs, dtype)
        for key, t in [*inputs.items(), *out.items()]:
            tensors[f"{name}/{key}"] = t
        metadata[name] = json.dumps(dict(state_dict=state_file(name), **OPTIONS[name]))
    return tensors, metadata


def recompute(tensors, metadata, dtype):
    result = OrderedDict()
    for name in SEEDS:
        state, _ = read_safetensors(os.path.join(HERE, state_file(name)))
        for key, t in run(name, state, case_tensors(tensors, name), dtype).items():
            result[f"{name}/{key}"] = t
    return result


# --- margins -------------------------------------------------------------------------------------

def watch_decisions(margins):
    """Records how near inputs of ReLU come to 0, and the two largest of a max pooling window to each other."""
    def before_relu(_, inputs):
        margins.append(inputs[0].abs().min().item())

    def before_pool(m, inputs):
        x = F.pad(inputs[0], [m.padding] * 4, value=-1.0)
        windows = F.unfold(x.flatten(0, 1)[:, None], m.kernel_size, stride=m.stride)
        top = windows.sort(dim=1, descending=True).values
        # A window of zeros passes no gradient on, whichever element is picked.
        margins.append((top[:, 0] - top[:, 1])[top[:, 0] > 0].min().item())

    def watch(module):
        for m in module.modules():
            if isinstance(m, nn.ReLU):
                m.register_forward_pre_hook(before_relu)
            elif isinstance(m, nn.MaxPool2d):
                m.register_forward_pre_hook(before_pool)
            elif isinstance(m, nn.TransformerEncoderLayer):
                m.linear1.register_forward_hook(lambda _, __, y: before_relu(_, [y]))
    return watch


def apart(a, b):
    scale = b.abs().max().item()
    return (a.double() - b.double()).abs().max().item() / (scale or 1)


def margins(name, seed):
    """The smallest such distance, and the difference between the results in float and double."""
    found, results = [], []
    for dtype in (torch.float64, torch.float32):
        watch = watch_decisions(found if dtype == torch.float64 else [])
        results.append(run(name, new_state(name, seed), new_inputs(name, seed, dtype), dtype,
                           watch))
    wide, narrow = results
    return min(found, default=1.0), max(apart(narrow[k], wide[k]) for k in wide)


def check_margins():
    for name, seed in SEEDS.items():
        margin, distance = margins(name, seed)
        print(f"{name}: smallest margin {margin:.1e}, float from double {distance:.1e}")
        if margin < 1e-5 or distance > 3e-6:
            raise SystemExit(f"{name}: a decision is too near to a tie; take another seed")
