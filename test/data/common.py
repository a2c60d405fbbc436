"""Shared by all recording scripts: safetensors files, reproducible data, this folder."""

import json
import math
import os
import random
import struct
import sys
from collections import OrderedDict

# The generic kernels: their results do not depend on the processor's vector width.
os.environ["ATEN_CPU_CAPABILITY"] = "default"

import numpy  # noqa: E402
import torch  # noqa: E402

HERE = os.path.dirname(os.path.abspath(__file__))
DTYPES = {"f64": torch.float64, "f32": torch.float32}


# --- safetensors ---------------------------------------------------------------------------------

DTYPE_NAMES = {"float64": "F64", "float32": "F32", "int64": "I64", "int32": "I32", "bool": "U8", "uint8": "U8"}
DTYPE_CODES = {"F64": "<f8", "F32": "<f4", "I64": "<i8", "I32": "<i4", "U8": "|u1"}


def write_safetensors(path, tensors, metadata):
    # Widest elements first, so that every tensor is aligned to its own element size.
    arrays = [(name, t.detach().numpy()) for name, t in tensors.items()]
    arrays.sort(key=lambda item: -item[1].itemsize)
    header, offset = {"__metadata__": metadata}, 0
    for name, a in arrays:
        header[name] = {"dtype": DTYPE_NAMES[a.dtype.name], "shape": list(a.shape),
                        "data_offsets": [offset, offset + a.nbytes]}
        offset += a.nbytes
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text)
        for _, a in arrays:
            f.write(a.astype(a.dtype.newbyteorder("<")).tobytes())


def read_safetensors(path):
    """The tensors and the metadata of a file; raises ValueError if it is malformed."""
    with open(path, "rb") as f:
        data = f.read()
    (length,) = struct.unpack("<Q", data[:8])
    header, body = json.loads(data[8:8 + length]), data[8 + length:]
    metadata, tensors, end = header.pop("__metadata__", {}), OrderedDict(), 0
    for name, entry in sorted(header.items(), key=lambda item: item[1]["data_offsets"]):
        begin, stop = entry["data_offsets"]
        code = DTYPE_CODES[entry["dtype"]]
        size = int(numpy.dtype(code).itemsize * math.prod(entry["shape"]))
        if length % 8 or begin != end or stop - begin != size or begin % numpy.dtype(code).itemsize:
            raise ValueError(f"{path}: bad offsets of {name}")
        array = numpy.frombuffer(body[begin:stop], code).reshape(entry["shape"])
        tensors[name], end = torch.from_numpy(array.astype(code[1:])), stop
    if end != len(body):
        raise ValueError(f"{path}: bytes left over")
    return tensors, metadata


def same(a, b):
    """Whether two tensors agree up to the last bits, which depend on OpenBLAS's choice of kernels."""
    if a is None or b is None or a.dtype != b.dtype or a.shape != b.shape:
        return False
    if torch.equal(a, b) or not a.is_floating_point():
        return torch.equal(a, b)
    finite = a.isfinite() & b.isfinite()
    if not numpy.array_equal(a[~finite], b[~finite], equal_nan=True):
        return False
    a, b = a[finite], b[finite]
    return (a - b).abs().max() <= 256 * torch.finfo(a.dtype).eps * a.abs().max()


def write_or_check(path, tensors, family, **metadata):
    """Writes a recording; with --check, compares it with the existing one instead."""
    if "--check" in sys.argv[1:]:
        recorded, _ = read_safetensors(path)
        for name in {**recorded, **tensors}:
            if not same(recorded.get(name), tensors.get(name)):
                raise SystemExit(f"{path}: {name} differs")
        print(f"{path}: {len(tensors)} tensors are the same")
        return
    write_safetensors(path, tensors, {"family": family,
                                      "recorded_with": f"PyTorch {torch.__version__}", **metadata})
    print(f"{path}: {os.path.getsize(path)} bytes, {len(tensors)} tensors")


# --- data ----------------------------------------------------------------------------------------

def uniform(key, shape, dtype, low=-2.0, high=2.0):
    """Reproducible values that are exact in float, so that both precisions start from the same numbers."""
    source = random.Random(key)
    values = [low + (high - low) * source.random() for _ in range(math.prod(shape))]
    return torch.tensor(values, dtype=torch.float32).reshape(shape).to(dtype)


def labels(key, shape, classes):
    source = random.Random(key)
    return torch.tensor([source.randrange(classes) for _ in range(math.prod(shape))],
                        dtype=torch.int64).reshape(shape)


def case_tensors(tensors, case):
    return OrderedDict((k[len(case) + 1:], v) for k, v in tensors.items()
                       if k.startswith(case + "/"))
