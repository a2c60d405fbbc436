"""Records files of torch.save and numpy.savez, and what they hold as safetensors.

    /usr/bin/python3 test/data/archives.py           write archive.pt, archive.npz and archives.safetensors
    /usr/bin/python3 test/data/archives.py --check   read them and compare
"""

import os
import sys
from collections import OrderedDict

import numpy
from common import HERE, same, uniform, write_or_check

import torch
from torch import nn

PT, NPZ = os.path.join(HERE, "archive.pt"), os.path.join(HERE, "archive.npz")


def tensors():
    t = OrderedDict()
    t["f32"] = uniform("archive", [3, 5], torch.float32)
    t["f64"] = uniform("archive", [7], torch.float64)
    t["f16"] = uniform("archive", [2, 3], torch.float32).half()
    t["i64"] = torch.tensor([-1, 2 ** 40, 7])
    t["i32"] = torch.tensor([[-5], [6]], dtype=torch.int32)
    t["i16"] = torch.tensor([-300, 300], dtype=torch.int16)
    t["i8"] = torch.tensor([-128, 127], dtype=torch.int8)
    t["u8"] = torch.tensor([0, 255], dtype=torch.uint8)
    t["bool"] = torch.tensor([True, False, True])
    t["scalar"] = torch.tensor(2.5)
    t["empty"] = torch.zeros(0, 3)
    return t


def checkpoint():
    torch.manual_seed(1)
    net = nn.Sequential(OrderedDict(fc=nn.Linear(5, 4), norm=nn.BatchNorm1d(4)))
    t = tensors()
    t["transposed"] = t["f32"].t()
    t["part"] = t["f32"][1:, ::2]
    t["tied"] = t["f64"]
    t["bf16"] = uniform("archive", [4], torch.float32).bfloat16()
    t["parameter"] = nn.Parameter(t["f32"][0])
    return {"model": net.state_dict(), "tensors": t, "epoch": 3, "lr": 0.5, "names": ["a", "b"], "none": None}


def expected(file):
    """What Ikebana reads: shorter types are widened."""
    out = OrderedDict()
    for name, t in file.items():
        wide = {torch.float16: torch.float32, torch.bfloat16: torch.float32, torch.int16: torch.int32,
                torch.int8: torch.int32, torch.bool: torch.uint8}.get(t.dtype, t.dtype)
        out[name] = t.detach().to(wide).contiguous()
    return out


def main():
    c = checkpoint()
    if "--check" not in sys.argv[1:]:
        torch.save(c, PT)
        numpy.savez(NPZ, fortran=numpy.asfortranarray(c["tensors"]["f32"].numpy()),
                    **{k: v.numpy() for k, v in tensors().items()})
    else:
        stored = torch.load(PT)
        for name, t in c["tensors"].items():
            assert same(stored["tensors"][name].float(), t.detach().float()), name
    all_ = expected(c["tensors"])
    all_.update(("model." + k, v) for k, v in expected(c["model"]).items())
    write_or_check(os.path.join(HERE, "archives.safetensors"), all_, "archives")


if __name__ == "__main__":
    main()
