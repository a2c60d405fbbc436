"""PyTorch's side of benchmarks/replicate: two processes with DistributedDataParallel (gloo), one
thread each, rank r on processor r.

Reads a command a line, answers with a line:
    step NETWORK RANKS OVERLAP BUDGET    seconds a step, bytes that a rank sends in one
    all_reduce BYTES BUDGET              seconds an all-reduce, the same
the median of as many as fit a budget of seconds, bytes being those of a ring.
With RANKS = 1 there is no DistributedDataParallel; with OVERLAP = 0 all gradients are one bucket,
reduced when backward is through.
"""

import datetime
import multiprocessing
import os
import statistics
import sys
import tempfile
import time

WORLD = 2


def networks():
    from torch import nn
    return {
        "mlp": (lambda: nn.Sequential(
            nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 512),
            nn.ReLU(), nn.Linear(512, 10)), [32, 784]),
        "lenet": (lambda: nn.Sequential(
            nn.Conv2d(1, 6, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(6, 16, 5),
            nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(400, 120), nn.ReLU(),
            nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, 10)), [32, 1, 28, 28]),
    }


def blas():
    """The library of matrix products that is loaded: it is most of PyTorch's time here."""
    with open("/proc/self/maps", encoding="utf-8") as f:
        names = {line.split()[-1] for line in f if "blas" in line or "mkl" in line}
    return ", ".join(sorted(names)) or "its own"


def pin(rank):
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) >= WORLD:
        os.sched_setaffinity(0, {cores[rank]})


class Worker:
    def __init__(self, rank, store):
        import torch
        import torch.distributed as dist
        torch.set_num_threads(1)
        dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=WORLD,
                                timeout=datetime.timedelta(seconds=60))
        self.rank, self.steps = rank, {}

    def make_step(self, network, ranks, overlap):
        import torch
        import torch.distributed as dist
        from torch.nn import functional as F
        from torch.nn.parallel import DistributedDataParallel
        make, shape = networks()[network]
        torch.manual_seed(1)
        net = make()
        model = net
        if ranks > 1:
            first = dist._DEFAULT_FIRST_BUCKET_BYTES
            if not overlap:
                dist._DEFAULT_FIRST_BUCKET_BYTES = 2**30
            model = DistributedDataParallel(net, bucket_cap_mb=25 if overlap else 1024)
            dist._DEFAULT_FIRST_BUCKET_BYTES = first
        optimizer = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9)
        torch.manual_seed(2 + self.rank)
        x, target = torch.rand(shape), torch.arange(shape[0]) % 10

        def step():
            optimizer.zero_grad(set_to_none=True)
            F.cross_entropy(model(x), target).backward()
            optimizer.step()

        size = sum(p.numel() * p.element_size() for p in net.parameters()) if ranks > 1 else 0
        for _ in range(5):
            step()
        return step, size

    def run(self, words):
        import torch
        import torch.distributed as dist
        if words[0] == "step":
            key = (words[1], int(words[2]), int(words[3]))
            if key[1] <= self.rank:
                return ""
            if key not in self.steps:
                self.steps[key] = self.make_step(*key)
            step, size = self.steps[key]
            together = key[1] > 1
        else:
            data = torch.zeros(int(words[1]) // 4)
            size, together = data.numel() * 4, True

            def step():
                dist.all_reduce(data)

            step()

        def timed(count):
            agreed = torch.tensor([count])
            if together:
                dist.broadcast(agreed, 0)
                dist.barrier()
            each, begin = [], time.perf_counter()
            for _ in range(int(agreed)):
                step()
                end = time.perf_counter()
                each.append(end - begin)
                begin = end
            return statistics.median(each)

        first = timed(3)
        return f"{timed(min(max(int(float(words[-1]) / first), 3), 5000)):.9f} {size}"


def serve(rank, store, pipe):
    pin(rank)
    worker = Worker(rank, store)
    while True:
        words = pipe.recv()
        if not words:
            return
        worker.run(words)


def main():
    try:
        import torch
    except ImportError as e:
        print(f"no PyTorch: {e}", flush=True)
        return
    with tempfile.TemporaryDirectory() as folder:
        store = os.path.join(folder, "store")
        context = multiprocessing.get_context("spawn")
        here, there = context.Pipe()
        other = context.Process(target=serve, args=(1, store, there), daemon=True)
        other.start()
        pin(0)
        worker = Worker(0, store)
        print(f"ready: PyTorch {torch.__version__}, BLAS {blas()}", flush=True)
        for line in sys.stdin:
            words = line.split()
            here.send(words)
            if not words:
                break
            print(worker.run(words), flush=True)
        else:
            here.send([])
        other.join()


if __name__ == "__main__":
    main()
