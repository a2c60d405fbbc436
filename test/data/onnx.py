"""Checks the ONNX files of test/data/onnx, and records what ONNX Runtime computes of them.

    IKEBANA_RECORD_ONNX=1 bazel-bin/test/io/onnx_test   # in the source tree: writes the files
    /usr/bin/python3 test/data/onnx.py                  # python3-onnx; npm install onnxruntime-node

torch_*.onnx are networks that PyTorch exports. The inputs are those of test/io/onnx_test.cc: a dimension without a number is 2.
"""

import json
import os
import subprocess
from collections import OrderedDict

import numpy
import torch

# The script's own folder has a folder of its name.
import sys
sys.path.pop(0)
import onnx  # noqa: E402
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from common import HERE, write_safetensors  # noqa: E402

RUN = """
const ort = require('onnxruntime-node');
const pattern = (n, first) => [...Array(n).keys()].map(i => ((37 * i + first) % 101) / 50 - 1);
const integers = (n, limit) => [...Array(n).keys()].map(i => BigInt((4 * i + 1) % limit));
const bools = n => [...Array(n).keys()].map(i => i % 3 == 2 ? 1 : 0);
(async () => {
  const files = JSON.parse(require('fs').readFileSync(0)), results = {};
  for (const {file, name, inputs} of files) {
    try {
    const session = await ort.InferenceSession.create(file, {graphOptimizationLevel: 'disabled'});
    const feeds = {};
    inputs.forEach(({name, type, dims}, i) => {
      const n = dims.reduce((a, b) => a * b, 1);
      const data = type == 'float32' ? Float32Array.from(pattern(n, i + 1))
                 : type == 'float64' ? Float64Array.from(pattern(n, i + 1))
                 : type == 'bool' ? Uint8Array.from(bools(n)) : BigInt64Array.from(integers(n, 3));
      feeds[name] = new ort.Tensor(type, data, dims);
    });
    const out = await session.run(feeds);
    session.outputNames.forEach((o, i) => {
      results[name + '.' + i] = {dims: out[o].dims, data: Array.from(out[o].data, Number)};
    });
    } catch (e) { console.error(name + ': ' + e); process.exitCode = 1; }
  }
  console.log(JSON.stringify(results));
})();
"""


class Residual(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3, padding=1), torch.nn.BatchNorm2d(4))
        self.conv = torch.nn.Conv2d(4, 4, 3, padding=1, bias=False)
        self.head = torch.nn.Linear(16, 5)

    def forward(self, x):
        x = torch.nn.functional.leaky_relu(self.stem(x), 0.2)
        x = torch.nn.functional.gelu(x + self.conv(x))
        x = torch.nn.functional.adaptive_avg_pool2d(torch.nn.functional.max_pool2d(x, 2), 2)
        return torch.log_softmax(self.head(x.view(x.size(0), -1)), 1)


class Tagger(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.table = torch.nn.Embedding(6, 4)
        self.lstm = torch.nn.LSTM(4, 3, num_layers=2, bidirectional=True, batch_first=True)
        self.norm = torch.nn.LayerNorm(6)
        self.tag = torch.nn.Linear(6, 3)

    def forward(self, tokens):
        h, _ = self.lstm(self.table(tokens))
        return torch.sigmoid(self.tag(self.norm(h)).clamp(max=0.5)) - h[:, -1:, :3] ** 2


class Encoder(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.TransformerEncoderLayer(6, 2, 8, batch_first=True)
        self.out = torch.nn.Linear(6, 3)

    def forward(self, x):
        return self.out(self.layer(x).mean(1))


class Padded(torch.nn.Module):
    def forward(self, x):
        return torch.nn.functional.pad(x, (1, 2))


def export_torch():
    for name, net, x in [("torch_residual", Residual(), torch.ones(2, 3, 8, 8)),
                         ("torch_padded", Padded(), torch.ones(2, 3, 5)),
                         ("torch_encoder", Encoder(), torch.ones(2, 5, 6)),
                         ("torch_tagger", Tagger(), torch.ones(2, 5, dtype=torch.int64))]:
        torch.manual_seed(1)
        for p in list(net.parameters()) + [b for b in net.buffers() if b.is_floating_point()]:
            torch.nn.init.uniform_(p, 0.1, 0.9) if p.dim() == 1 else torch.nn.init.uniform_(p, -0.5, 0.5)
        torch.onnx.export(net.eval(), (x,), os.path.join(HERE, "onnx", name + ".onnx"),
                          opset_version=17, input_names=["x"], output_names=["y"],
                          dynamic_axes={"x": {0: "batch"}, "y": {0: "batch"}})


def write_part_of_constant():
    h = onnx.helper
    graph = h.make_graph(
        [h.make_node("Slice", ["table", "starts", "ends", "axes"], ["part"]),
         h.make_node("Add", ["x", "part"], ["y"])],
        "part_of_constant",
        [h.make_tensor_value_info("x", 1, [1, 2, 3])], [h.make_tensor_value_info("y", 1, [1, 2, 3])],
        [h.make_tensor("table", 1, [4, 6], range(24))] +
        [h.make_tensor(name, 7, [2], value)
         for name, value in [("starts", [1, 2]), ("ends", [3, 5]), ("axes", [0, 1])]])
    onnx.save(h.make_model(graph, opset_imports=[h.make_opsetid("", 17)], ir_version=8),
              os.path.join(HERE, "onnx", "part_of_constant.onnx"))


TYPES = {1: "float32", 11: "float64", 7: "int64", 9: "bool"}


def main():
    export_torch()
    write_part_of_constant()
    runs = []
    for file in sorted(f for f in os.listdir(os.path.join(HERE, "onnx")) if f.endswith(".onnx")):
        path = os.path.join(HERE, "onnx", file)
        model = onnx.load(path)
        onnx.checker.check_model(model, full_check=True)
        inputs = [{"name": i.name, "type": TYPES[i.type.tensor_type.elem_type],
                   "dims": [d.dim_value if d.HasField("dim_value") else 2
                            for d in i.type.tensor_type.shape.dim]} for i in model.graph.input]
        runs.append({"file": path, "name": file[:-len(".onnx")], "inputs": inputs})
    done = subprocess.run(["node", "-e", RUN], input=json.dumps(runs).encode(), check=True,
                          stdout=subprocess.PIPE)
    tensors = OrderedDict()
    for name, value in sorted(json.loads(done.stdout).items()):
        tensors[name] = torch.tensor(value["data"], dtype=torch.float64).reshape(value["dims"])
    write_safetensors(os.path.join(HERE, "onnx", "values.safetensors"), tensors, {})
    print(len(runs), "files,", len(tensors), "outputs")


main()
