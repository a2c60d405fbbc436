"""Modules with any number of inputs and outputs: one family for each layers_<area>.py in this
folder, whose function cases() returns an OrderedDict of Case by name."""

import functools
import importlib
import os
import random
import sys
from collections import OrderedDict

from common import HERE, labels, uniform

import torch

sys.path.insert(0, HERE)


class Case:
    """make() builds the module; inputs are shapes (of uniform numbers in [-2, 2)) or results of the
    functions below; call(module, *inputs) returns a tensor or a tuple of tensors."""

    def __init__(self, make, inputs, training=True, call=None, options=""):
        self.make, self.inputs, self.training, self.options = make, inputs, training, options
        self.call = call or (lambda m, *xs: m(*xs))


def indices(shape, high):
    return lambda key, dtype: labels(key, shape, high)


def booleans(shape):
    return lambda key, dtype: labels(key, shape, 2).to(torch.bool)


def values(shape, low, high):
    return lambda key, dtype: uniform(key, shape, dtype, low, high)


def constant(numbers):
    """Integers are indices; True and False are booleans."""
    def make(key, dtype):
        t = torch.tensor(numbers)
        return t.to(dtype) if t.is_floating_point() else t
    return make


def areas():
    return sorted(n[:-len(".py")] for n in os.listdir(HERE)
                  if n.startswith("layers_") and n.endswith(".py"))


@functools.lru_cache(None)
def cases_of(area):
    return importlib.import_module(area).cases()


def state_of(case, module, dtype):
    """Values for every parameter and buffer that differ from neutral ones (0 or 1)."""
    state = OrderedDict()
    for name, t in module.state_dict().items():
        if not t.is_floating_point():
            state[name] = torch.tensor(3) if name.endswith("num_batches_tracked") else t
        elif name.endswith("running_var") or (t.dim() == 1 and name.endswith("weight")):
            state[name] = uniform(case + name, t.shape, dtype, 0.5, 1.5)
        else:
            state[name] = uniform(case + name, t.shape, dtype, -0.5, 0.5)
        if name.endswith(".original") and t.dim() > 1:  # Householder reflections, with signs on the diagonal.
            state[name].diagonal(dim1=-2, dim2=-1).sign_()
    return state


def run(area, name, xs, state, gradient_of, dtype):
    torch.manual_seed(random.Random(name).randrange(2 ** 31))
    case = cases_of(area)[name]
    m = case.make().to(dtype)
    m.train(case.training)
    m.load_state_dict(state)
    xs = [x.clone().requires_grad_() if x.is_floating_point() else x for x in xs]
    ys = case.call(m, *xs)
    ys = tuple(ys) if isinstance(ys, (tuple, list)) else (ys,)
    gys = [gradient_of(i, y) for i, y in enumerate(ys)]
    torch.autograd.backward(ys, gys)
    out = OrderedDict()
    for i, (y, gy) in enumerate(zip(ys, gys)):
        out[f"y{i}"], out[f"gy{i}"] = y.detach(), gy
    for i, x in enumerate(xs):
        if x.is_floating_point():
            out[f"gx{i}"] = torch.zeros_like(x) if x.grad is None else x.grad
    for key, p in m.named_parameters():
        out["grad." + key] = torch.zeros_like(p) if p.grad is None else p.grad
    after = m.state_dict()
    for key, _ in m.named_buffers():
        if key in after:
            out["after." + key] = after[key].clone()
    return out


def record(area, dtype):
    tensors, metadata = OrderedDict(), OrderedDict()
    for name, case in cases_of(area).items():
        xs = []
        for i, spec in enumerate(case.inputs):
            key = f"{name}.x{i}"
            xs.append(spec(key, dtype) if callable(spec) else uniform(key, spec, dtype))
        state = state_of(name, case.make().to(dtype), dtype)
        out = run(area, name, xs, state,
                  lambda i, y: uniform(f"{name}.gy{i}", list(y.shape), dtype, -1, 1), dtype)
        for key, t in [*((f"x{i}", x) for i, x in enumerate(xs)), *state.items(), *out.items()]:
            tensors[f"{name}/{key}"] = t
        metadata[name] = case.options
    return tensors, metadata


def recompute(area, tensors, metadata, dtype):
    result = OrderedDict()
    for name, case in cases_of(area).items():
        t = OrderedDict((k[len(name) + 1:], v) for k, v in tensors.items()
                        if k.startswith(name + "/"))
        xs = []
        for i, spec in enumerate(case.inputs):
            x = t[f"x{i}"]
            xs.append(x.to(torch.bool) if x.dtype == torch.uint8 else x)
        state = OrderedDict((k, t[k]) for k in case.make().state_dict())
        for key, v in run(area, name, xs, state, lambda i, y: t[f"gy{i}"], dtype).items():
            result[f"{name}/{key}"] = v
    return result
