"""Records parameters after 20 steps of optimizers that update whole tensors, and of decoupled weight decay.

PyTorch 1.13 has SparseAdam. The others are written here by their papers and by the code of PyTorch 2
(torch/optim/_adafactor.py, _muon.py, nadam.py, radam.py).

    /usr/bin/python3 test/data/tensor_optimizers.py           write tensor_optimizers.safetensors
    /usr/bin/python3 test/data/tensor_optimizers.py --check   recompute its outputs
"""

import os
from collections import OrderedDict

from common import DTYPES, HERE, uniform, write_or_check

import torch
from torch.optim import NAdam, RAdam, SparseAdam

PATH = os.path.join(HERE, "tensor_optimizers.safetensors")
STEPS = 20
# conv, fc1 (wide) and fc2 (tall): weight and bias.
SHAPES = [[4, 3, 2, 3], [4], [6, 16], [6], [9, 6], [9]]


def lamb(p, g, s, t, lr=1e-3, betas=(0.9, 0.999), eps=1e-6, weight_decay=1e-2, maximize=False):
    g = -g if maximize else g
    m, v = s.setdefault("m", torch.zeros_like(p)), s.setdefault("v", torch.zeros_like(p))
    m.mul_(betas[0]).add_(g, alpha=1 - betas[0])
    v.mul_(betas[1]).addcmul_(g, g, value=1 - betas[1])
    r = (m / (1 - betas[0] ** t)) / ((v / (1 - betas[1] ** t)).sqrt() + eps)
    u = r + weight_decay * p
    trust = p.norm() / u.norm() if p.norm() > 0 and u.norm() > 0 else 1
    p.sub_(lr * trust * u)


def adafactor(p, g, s, t, lr=1e-2, beta2_decay=-0.8, eps=(None, 1e-3), d=1.0, weight_decay=0.0,
              maximize=False):
    g = -g if maximize else g
    eps1, eps2 = eps
    eps1 = torch.finfo(p.dtype).eps if eps1 is None else eps1
    fresh = t ** beta2_decay
    alpha = max(eps2, p.norm(2).item() / p.numel() ** 0.5) * min(lr, 1 / t ** 0.5)
    if weight_decay != 0:
        p.mul_(1 - lr * weight_decay)
    if g.dim() > 1:
        row = s.setdefault("row_var", g.new_zeros(g.shape[:-1] + (1,)))
        col = s.setdefault("col_var", g.new_zeros(g.shape[:-2] + (1, g.shape[-1])))
        row.lerp_(g.square().mean(dim=-1, keepdim=True), fresh)
        col.lerp_(g.square().mean(dim=-2, keepdim=True), fresh)
        estimate = row @ col / row.mean(dim=-2, keepdim=True).clamp_(min=eps1)
    else:
        variance = s.setdefault("variance", torch.zeros_like(g))
        variance.lerp_(g * g, fresh)
        estimate = variance.clone()
    update = estimate.clamp_(min=eps1 * eps1).rsqrt_() * g
    denom = max(1.0, update.norm(2).item() / (update.numel() ** 0.5 * d))
    p.add_(update, alpha=-alpha / denom)


def adamw(p, g, s, t, lr, betas, eps, weight_decay):
    m, v = s.setdefault("m", torch.zeros_like(p)), s.setdefault("v", torch.zeros_like(p))
    p.mul_(1 - lr * weight_decay)
    m.mul_(betas[0]).add_(g, alpha=1 - betas[0])
    v.mul_(betas[1]).addcmul_(g, g, value=1 - betas[1])
    denom = v.sqrt() / (1 - betas[1] ** t) ** 0.5 + eps
    p.addcdiv_(m, denom, value=-lr / (1 - betas[0] ** t))


def muon(p, g, s, t, lr=1e-3, weight_decay=0.1, momentum=0.95, nesterov=True, maximize=False,
         coefficients=(3.4445, -4.775, 2.0315), eps=1e-7, ns_steps=5, match_rms=False,
         betas=(0.9, 0.95), adamw_eps=1e-10):
    g = -g if maximize else g
    if p.dim() < 2:
        return adamw(p, g, s, t, lr, betas, adamw_eps, weight_decay)
    b = s.setdefault("buffer", torch.zeros_like(p))
    b.lerp_(g, 1 - momentum)
    x = (g.lerp(b, momentum) if nesterov else b).flatten(1)
    rows, columns = x.shape
    x = x.T if rows > columns else x
    x = x / x.norm().clamp(min=eps)
    for _ in range(ns_steps):
        gram = x @ x.T
        x = coefficients[0] * x + (coefficients[1] * gram + coefficients[2] * gram @ gram) @ x
    x = (x.T if rows > columns else x).reshape(p.shape)
    ratio = 0.2 * max(rows, columns) ** 0.5 if match_rms else max(1, rows / columns) ** 0.5
    p.mul_(1 - lr * weight_decay)
    p.add_(x, alpha=-lr * ratio)


FORMULAS = {
    "lamb": (lamb, dict()),
    "lamb_options": (lamb, dict(lr=0.05, betas=(0.5, 0.9), eps=1e-3, weight_decay=0.1,
                                maximize=True)),
    "adafactor": (adafactor, dict()),
    "adafactor_options": (adafactor, dict(lr=0.3, beta2_decay=-0.5, eps=(1e-2, 0.5), d=1.5,
                                          weight_decay=0.1, maximize=True)),
    "muon": (muon, dict()),
    "muon_options": (muon, dict(lr=0.05, momentum=0.5, nesterov=False, maximize=True, ns_steps=3,
                                match_rms=True, betas=(0.5, 0.9), adamw_eps=1e-3)),
}


def record_formulas(tensors, name, start, gradients):
    sizes = [torch.Size(s).numel() for s in SHAPES]
    for case, (update, options) in FORMULAS.items():
        parameters = [p.clone().reshape(s) for p, s in zip(start.split(sizes), SHAPES)]
        states = [{} for _ in parameters]
        for step in range(STEPS):
            for p, g, s, extents in zip(parameters, gradients[step].split(sizes), states, SHAPES):
                update(p, g.clone().reshape(extents), s, step + 1, **options)
        tensors[f"{name}/{case}"] = torch.cat([p.flatten() for p in parameters])


def record_optimizers(tensors, name, start, gradients):
    sizes = [torch.Size(s).numel() for s in SHAPES]
    options = dict(lr=0.05, betas=(0.5, 0.9), eps=1e-3)
    for case, make, decay in [("sparse_adam", lambda p: SparseAdam(p), 0),
                              ("sparse_adam_options", lambda p: SparseAdam(p, **options), 0),
                              ("nadam_decoupled", lambda p: NAdam(p, foreach=True, **options), 0.1),
                              ("radam_decoupled", lambda p: RAdam(p, **options), 0.1)]:
        parameters = [torch.nn.Parameter(p.clone().reshape(s))
                      for p, s in zip(start.split(sizes), SHAPES)]
        optimizer = make(parameters)
        for step in range(STEPS):
            for p, g, s in zip(parameters, gradients[step].split(sizes), SHAPES):
                g = g.clone().reshape(s)
                p.grad = g.to_sparse(1) if case.startswith("sparse") else g
                p.data.mul_(1 - options["lr"] * decay)
            optimizer.step()
        tensors[f"{name}/{case}"] = torch.cat([p.detach().flatten() for p in parameters])


def record():
    tensors = OrderedDict()
    sizes = [torch.Size(s).numel() for s in SHAPES]
    for name, dtype in DTYPES.items():
        start = uniform("tensor optimizer parameters", [sum(sizes)], dtype)
        gradients = uniform("tensor optimizer gradients", [STEPS, sum(sizes)], dtype)
        # Rows 1 and 2 of fc1.weight have no gradient in even steps, and rows 0 and 5 never.
        for step in range(STEPS):
            rows = gradients[step].split(sizes)[2].view(6, 16)
            rows[[0, 5] if step % 2 else [0, 1, 2, 5]] = 0
        tensors[f"{name}/parameters"], tensors[f"{name}/gradients"] = start, gradients
        record_formulas(tensors, name, start, gradients)
        record_optimizers(tensors, name, start, gradients)
    return tensors


def main():
    write_or_check(PATH, record(), "tensor_optimizers")


if __name__ == "__main__":
    main()
