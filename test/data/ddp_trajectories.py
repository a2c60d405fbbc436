"""Records 20 steps of PyTorch's DistributedDataParallel on two processes (gloo).

    /usr/bin/python3 test/data/ddp_trajectories.py           write both files
    /usr/bin/python3 test/data/ddp_trajectories.py --check   recompute their outputs

What is recorded:
    x, target, image, image_target    batch of rank r in step s at [s, r]
    <network>/initial.<name>          state before the first step
    <case>/losses                     [step, rank], of all microbatches; 0 without any
    <case>/step<n>.<name>             state of rank 0 after n steps
    <case>/steps                      number of steps of each rank, if it is not 20
    <case>/chosen                     the chosen branch, [step, rank]
"""

import contextlib
import json
import os
import pickle
import tempfile
from collections import OrderedDict

from common import DTYPES, HERE, labels, uniform, write_or_check

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel

WORLD, STEPS, BATCH, IMAGES = 2, 20, 8, 4
RECORDED_STEPS = (1, 5, STEPS)
SMALL_BUCKETS = 256 / 2**20  # MiB: several buckets even for networks as small as these


def mlp():
    return nn.Sequential(OrderedDict(
        fc1=nn.Linear(12, 16), tanh=nn.Tanh(), fc2=nn.Linear(16, 5)))


def convolutional():
    return nn.Sequential(OrderedDict(
        conv=nn.Conv2d(2, 4, 3, padding=1), norm=nn.BatchNorm2d(4), tanh=nn.Tanh(),
        flatten=nn.Flatten(), fc=nn.Linear(64, 5)))


class Branches(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(12, 16)
        self.branch = nn.ModuleDict(dict(left=nn.Linear(16, 5), right=nn.Linear(16, 5)))

    def forward(self, x, branch):
        h = torch.tanh(self.fc1(x))
        return self.branch["left" if branch == 0 else "right"](h)


NETWORKS = OrderedDict(mlp=mlp, convolutional=convolutional, branches=Branches)
SGD = dict(optimizer="sgd", lr=0.1, momentum=0.9)
CASES = OrderedDict(
    momentum=dict(network="mlp", **SGD),
    buffers=dict(network="convolutional", optimizer="sgd", lr=0.05, momentum=0.0),
    adam=dict(network="mlp", optimizer="adam", lr=0.01),
    accumulation=dict(network="mlp", microbatches=[3, 5], **SGD),
    join_initial_world=dict(network="mlp", steps=[20, 14], divide_by_initial_world_size=True,
                            **SGD),
    join_effective_world=dict(network="mlp", steps=[14, 20], divide_by_initial_world_size=False,
                              **SGD),
    unused=dict(network="branches", **SGD),
)
# Both take one, both take the other, each takes another: twice.
CHOSEN = torch.tensor([[[0, 0], [1, 1], [0, 1], [1, 0]][s % 4] for s in range(STEPS)])


def batches(dtype):
    return OrderedDict(
        x=uniform("ddp.x", [STEPS, WORLD, BATCH, 12], dtype),
        target=labels("ddp.target", [STEPS, WORLD, BATCH], 5),
        image=uniform("ddp.image", [STEPS, WORLD, IMAGES, 2, 4, 4], dtype),
        image_target=labels("ddp.image_target", [STEPS, WORLD, IMAGES], 5))


def initial(name, dtype):
    state = NETWORKS[name]().to(dtype).state_dict()
    for key, t in state.items():
        if t.dtype != dtype or key.startswith("norm.running"):
            continue
        low, high = (0.5, 1.5) if key == "norm.weight" else (-0.25, 0.25)
        state[key] = uniform(f"ddp.{name}.{key}", list(t.shape), dtype, low, high)
    return state


def run(case, dtype, rank):
    options = CASES[case]
    data = batches(dtype)
    images = options["network"] == "convolutional"
    xs, targets = (data["image"], data["image_target"]) if images else (data["x"], data["target"])
    net = NETWORKS[options["network"]]().to(dtype)
    if rank == 0:  # the others' weights come from it
        net.load_state_dict(initial(options["network"], dtype))
    unused = options["network"] == "branches"
    ddp = DistributedDataParallel(net, bucket_cap_mb=SMALL_BUCKETS, find_unused_parameters=unused)
    if options["optimizer"] == "adam":
        optimizer = torch.optim.Adam(net.parameters(), lr=options["lr"])
    else:
        optimizer = torch.optim.SGD(net.parameters(), lr=options["lr"],
                                    momentum=options["momentum"])
    parts = options.get("microbatches", [xs.shape[2]])
    uneven = "steps" in options
    own_steps = options["steps"][rank] if uneven else STEPS
    out = OrderedDict(losses=torch.zeros(STEPS, dtype=dtype))
    together = contextlib.nullcontext()
    if uneven:
        together = ddp.join(divide_by_initial_world_size=options["divide_by_initial_world_size"])
    with together:
        for step in range(own_steps):
            optimizer.zero_grad(set_to_none=True)
            x, target = xs[step, rank].split(parts), targets[step, rank].split(parts)
            for part in range(len(parts)):
                last = part + 1 == len(parts)
                with contextlib.nullcontext() if last else ddp.no_sync():
                    given = (x[part], CHOSEN[step, rank]) if unused else (x[part],)
                    loss = F.cross_entropy(ddp(*given), target[part])
                    loss.backward()
                    out["losses"][step] += loss.detach()
            optimizer.step()
            if step + 1 in RECORDED_STEPS and not (uneven and step + 1 == STEPS):
                for key, t in net.state_dict().items():
                    out[f"step{step + 1}.{key}"] = t.clone()
    if uneven:  # join has given all the weights of the rank that went on longest
        for key, t in net.state_dict().items():
            out[f"step{STEPS}.{key}"] = t.clone()
    return out


def worker(rank, folder):
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    torch.backends.mkldnn.enabled = False
    torch.manual_seed(rank)
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank,
                            world_size=WORLD)
    out = OrderedDict()
    for suffix, dtype in DTYPES.items():
        for case in CASES:
            for key, t in run(case, dtype, rank).items():
                out[suffix, case, key] = t.numpy()
    with open(os.path.join(folder, f"results{rank}"), "wb") as f:
        pickle.dump(out, f)
    dist.barrier()


def run_ranks():
    with tempfile.TemporaryDirectory() as folder:
        context = mp.get_context("spawn")
        processes = [context.Process(target=worker, args=(r, folder)) for r in range(WORLD)]
        for p in processes:
            p.start()
        for p in processes:
            p.join()
            if p.exitcode != 0:
                raise RuntimeError(f"a rank ended with {p.exitcode}")
        results = []
        for r in range(WORLD):
            with open(os.path.join(folder, f"results{r}"), "rb") as f:
                results.append({k: torch.from_numpy(v) for k, v in pickle.load(f).items()})
    return results


def record(suffix, dtype, results):
    tensors = batches(dtype)
    for name in NETWORKS:
        for key, t in initial(name, dtype).items():
            tensors[f"{name}/initial.{key}"] = t
    for case, options in CASES.items():
        tensors[f"{case}/losses"] = torch.stack([r[suffix, case, "losses"] for r in results], 1)
        if "steps" in options:
            tensors[f"{case}/steps"] = torch.tensor(options["steps"])
        if options["network"] == "branches":
            tensors[f"{case}/chosen"] = CHOSEN
        for (s, c, key), t in results[0].items():
            if (s, c) != (suffix, case) or key == "losses":
                continue
            tensors[f"{case}/{key}"] = t
            # Parameters are the same on every rank; buffers are between two forwards rank 0's own.
            buffer = any(b in key for b in ("running", "tracked"))
            if not buffer and key in [k[2] for k in results[1] if k[:2] == (s, c)]:
                assert torch.equal(t, results[1][s, c, key]), (case, key)
    return tensors


def main():
    results = run_ranks()
    for suffix, dtype in DTYPES.items():
        write_or_check(os.path.join(HERE, f"ddp_trajectories_{suffix}.safetensors"),
                       record(suffix, dtype, results), "ddp_trajectories",
                       **{c: json.dumps(o) for c, o in CASES.items()})


if __name__ == "__main__":
    main()
