"""Records the gradients that PyTorch's communication hooks return on two processes (gloo), and its
assignment of tensors to buckets.

    /usr/bin/python3 test/data/comm_hooks.py           write comm_hooks.safetensors
    /usr/bin/python3 test/data/comm_hooks.py --check   recompute its outputs

The hooks are called with a bucket made here, so that gradients and the first Q of PowerSGD do not
come from PyTorch's generator.
"""

import os
import pickle
import tempfile
from collections import OrderedDict

from common import HERE, uniform, write_or_check

import random
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook as power
from torch.distributed.algorithms.ddp_comm_hooks import quantization_hooks as quantization

PATH = os.path.join(HERE, "comm_hooks.safetensors")
WORLD = 2
SHAPES = OrderedDict(a=[12, 9], b=[7], c=[8, 2, 2, 3], d=[14, 14], e=[3, 3])
TOTAL = sum(torch.Size(s).numel() for s in SHAPES.values())
STEPS, START = 5, 2
RANKS = [1, 2, 3]


class Bucket:
    def __init__(self, flat):
        self.flat = flat

    def buffer(self):
        return self.flat

    def index(self):
        return 0

    def is_last(self):
        return True

    def gradients(self):
        out, at = [], 0
        for s in SHAPES.values():
            n = torch.Size(s).numel()
            out.append(self.flat[at:at + n].view(s))
            at += n
        return out


def matrix(s, rank):
    """(rows, columns, rank) if PowerSGD compresses the tensor, else None."""
    n, m = s[0], torch.Size(s[1:]).numel()
    r = min(n, m, rank)
    return (n, m, r) if (n + m) * r * 2 < n * m else None


def gradient(rank, step):
    return uniform(f"gradient {rank} {step}", [TOTAL], torch.float64)


def first_q(name, rank):
    n, m, r = matrix(SHAPES[name], rank)
    return uniform(f"q {name} {rank}", [m, r], torch.float64)


def run_powersgd(rank, approximation, feedback):
    state = power.PowerSGDState(None, matrix_approximation_rank=approximation,
                                start_powerSGD_iter=START, use_error_feedback=feedback,
                                warm_start=True)
    names = [k for k, s in SHAPES.items() if matrix(s, approximation)]
    qs = torch.cat([first_q(k, approximation).reshape(-1) for k in names])
    p_size = sum(matrix(SHAPES[k], approximation)[0] * matrix(SHAPES[k], approximation)[2]
                 for k in names)
    out = []
    for step in range(STEPS):
        if step == START:
            state.p_memory_dict[0] = torch.empty(p_size, dtype=torch.float64)
            state.q_memory_dict[0] = qs.clone()
        bucket = Bucket(gradient(rank, step))
        reduced = power.powerSGD_hook(state, bucket).wait()
        if step >= START:
            out.append(reduced.clone())
    return torch.stack(out)


def cubes(rank):
    g = uniform(f"quantized {rank}", [300], torch.float32)
    return g * g * g  # unevenly spread


def run_quantization(channel):
    """The steps of the hooks in quantization_hooks, which themselves run only on GPUs: their observers
    and functions in one process."""
    total = 0
    for rank in range(WORLD):
        g = cubes(rank)
        if channel:
            rows = torch.nn.functional.pad(g, (0, -len(g) % channel)).view(-1, channel)
            observer = torch.quantization.PerChannelMinMaxObserver()
            observer(rows)
            s, z = observer.calculate_qparams()
            for i in range(len(rows)):
                q = quantization._quantize_per_tensor_cuda(rows[i], s[i], z[i])
                rows[i] = quantization._dequantize_per_tensor_cuda(q, s[i], z[i])
            total = total + rows.reshape(-1)[:len(g)]
        else:
            observer = torch.quantization.MinMaxObserver()
            observer(g)
            s, z = observer.calculate_qparams()
            q = quantization._quantize_per_tensor_cuda(g, s, z)
            total = total + quantization._dequantize_per_tensor_cuda(q, s, z)
    return total / WORLD


def worker(rank, folder):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=WORLD)
    out = OrderedDict()
    for r in RANKS:
        out[f"powersgd/rank{r}"] = run_powersgd(rank, r, True)
    out["powersgd/no_feedback"] = run_powersgd(rank, 2, False)
    if rank == 0:
        with open(os.path.join(folder, "results"), "wb") as f:
            pickle.dump({k: v.numpy() for k, v in out.items()}, f)
    dist.barrier()


def assignments():
    """Random tensors of at most two dtypes, limits and orders, with PyTorch's assignment."""
    out = OrderedDict()
    dtypes = [torch.float32, torch.float64]
    for case in range(24):
        source = random.Random(f"assignment {case}")
        n = source.randrange(1, 16)
        ordered = case % 3 == 2
        kinds = [0 if ordered else source.randrange(2) for _ in range(n)]
        sizes = [source.randrange(1, 40) for _ in range(n)]
        limits = [source.randrange(1, 400) for _ in range(source.randrange(1, 4))]
        order = source.sample(range(n), n) if ordered else []
        tensors = [torch.empty(s, dtype=dtypes[k]) for s, k in zip(sizes, kinds)]
        # It takes tensors in the order of their arrival, and order[i] for the name of the i-th.
        arrived = [tensors[i] for i in order] or tensors
        result, result_limits = dist._compute_bucket_assignment_by_size(
            arrived, limits, [False] * n, order)
        bytes_ = [s * (8 if k else 4) for s, k in zip(sizes, kinds)]
        flat = [i for b in result for i in b]
        for key, value in dict(bytes=bytes_, kinds=kinds, limits=limits, order=order, indices=flat,
                               counts=[len(b) for b in result],
                               result_limits=list(result_limits)).items():
            out[f"assignment{case}/{key}"] = torch.tensor(value, dtype=torch.int64)
    return out


def record():
    tensors = OrderedDict()
    for rank in range(WORLD):
        tensors[f"gradients/{rank}"] = torch.stack([gradient(rank, s) for s in range(STEPS)])
        tensors[f"quantized/{rank}"] = cubes(rank)
    tensors["quantized/per_tensor"] = run_quantization(0)
    tensors["quantized/per_channel"] = run_quantization(64)
    for r in RANKS:
        for name, s in SHAPES.items():
            if matrix(s, r):
                tensors[f"q{r}/{name}"] = first_q(name, r).t().contiguous()
    with tempfile.TemporaryDirectory() as folder:
        context = mp.get_context("spawn")
        processes = [context.Process(target=worker, args=(r, folder))
                     for r in range(WORLD)]
        for p in processes:
            p.start()
        for p in processes:
            p.join()
            if p.exitcode != 0:
                raise RuntimeError(f"a rank ended with {p.exitcode}")
        with open(os.path.join(folder, "results"), "rb") as f:
            results = pickle.load(f)
    for name, value in results.items():
        tensors[name] = torch.from_numpy(value)
    tensors.update(assignments())
    return tensors


def main():
    write_or_check(PATH, record(), "comm_hooks")


if __name__ == "__main__":
    main()
