"""Writes networks as Keras' exporter (tf2onnx) does to test/data/onnx: keras_image.onnx, keras_sequence.onnx.

    /usr/bin/python3 test/data/keras_onnx.py    # python3-onnx; then test/data/onnx.py records their outputs

Images are NHWC between layers; a dense layer is a MatMul and an Add; a recurrent layer is time-major inside, its initial
state is made of the input's shape, and the directions of a bidirectional one are taken apart and concatenated.
"""

import os
import sys

sys.path.pop(0)  # The script's own folder has a folder of the name onnx.
import numpy
import onnx
from onnx import TensorProto, checker, helper, numpy_helper

FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "onnx")
random = numpy.random.default_rng(7)


class Graph:
    def __init__(self):
        self.nodes, self.constants = [], []

    def constant(self, name, array):
        if any(c.name == name for c in self.constants):
            return name
        self.constants.append(numpy_helper.from_array(numpy.asarray(array), name))
        return name

    def drawn(self, name, *shape, low=-0.5):
        return self.constant(name, random.uniform(low, 0.5, shape).astype(numpy.float32))

    def __call__(self, op, layer, inputs, outputs=1, **attributes):
        name = f"StatefulPartitionedCall/model/{layer}/{op}"
        if any(n.name == name for n in self.nodes):
            name += f"__{len(self.nodes)}"
        made = [f"{name}:{i}" for i in range(outputs)]
        self.nodes.append(helper.make_node(op, inputs, made, name=name, **attributes))
        return made[0] if outputs == 1 else made

    def ints(self, *values, dtype=numpy.int64):
        return self.constant(f"const_{len(self.constants)}", numpy.array(values, dtype))

    def dense(self, layer, x, inputs, outputs):
        y = self("MatMul", layer, [x, self.drawn(f"{layer}/MatMul/ReadVariableOp:0", inputs, outputs)])
        return self("Add", layer, [y, self.drawn(f"{layer}/BiasAdd/ReadVariableOp:0", outputs)])

    def save(self, name, x, x_dims, y, y_dims):
        self.nodes.append(helper.make_node("Identity", [y], ["output"], name="Identity"))
        graph = helper.make_graph(
            self.nodes, "tf2onnx", [helper.make_tensor_value_info(x, TensorProto.FLOAT, x_dims)],
            [helper.make_tensor_value_info("output", TensorProto.FLOAT, y_dims)], self.constants)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 15)], producer_name="tf2onnx")
        model.ir_version = 8
        checker.check_model(model, full_check=True)
        onnx.save(model, os.path.join(FOLDER, name + ".onnx"))


def image():
    g = Graph()
    x = g("Transpose", "conv2d", ["input_1"], perm=[0, 3, 1, 2])
    x = g("Conv", "conv2d", [x, g.drawn("conv2d/kernel", 4, 3, 3, 3), g.drawn("conv2d/bias", 4)],
          kernel_shape=[3, 3], strides=[2, 2], pads=[0, 0, 1, 1], dilations=[1, 1], group=1)
    limits = [g.constant(n, numpy.float32(v)) for n, v in (("const_low", 0), ("const_six", 6))]
    x = g("Clip", "re_lu6", [x] + limits)
    # A depthwise layer, whose norm follows in NHWC.
    x = g("Conv", "depthwise_conv2d", [x, g.drawn("depthwise/kernel", 4, 1, 3, 3)], auto_pad="SAME_UPPER",
          kernel_shape=[3, 3], strides=[1, 1], dilations=[1, 1], group=4)
    x = g("BatchNormalization", "batch_normalization",
          [x, g.drawn("gamma", 4), g.drawn("beta", 4), g.drawn("mean", 4), g.drawn("variance", 4, low=0.1)],
          epsilon=0.001)
    x = g("MaxPool", "max_pooling2d", [x], kernel_shape=[2, 2], strides=[2, 2], auto_pad="VALID")
    x = g("Transpose", "max_pooling2d", [x], perm=[0, 2, 3, 1])
    x = g("Reshape", "flatten", [x, g.ints(-1, 16)])
    x = g("Relu", "dense", [g.dense("dense", x, 16, 6)])
    x = g("Softmax", "dense_1", [g.dense("dense_1", x, 6, 3)], axis=1)
    g.save("keras_image", "input_1", ["unk__1", 8, 8, 3], x, ["unk__2", 3])


def zeros_of(g, layer, x, hidden):
    """The initial state of a layer: zeros of (1, batch, hidden), from the shape of x."""
    n = g("Cast", layer, [g("Shape", layer, [x])], to=TensorProto.INT32)
    n = g("Slice", layer, [n, g.ints(0), g.ints(1), g.ints(0)])
    n = g("Concat", layer, [n, g.ints(hidden, dtype=numpy.int32)], axis=0)
    n = g("Cast", layer, [n], to=TensorProto.INT64)
    zero = g.constant(f"{layer}/zeros/Const", numpy.float32(0))
    return g("Unsqueeze", layer, [g("Expand", layer, [zero, n]), g.ints(0)])


def recurrent(g, op, layer, x, inputs, hidden, directions, **attributes):
    gates = {"LSTM": 4, "GRU": 3}[op]
    weights = [g.drawn(f"{layer}/W", directions, gates * hidden, inputs),
               g.drawn(f"{layer}/R", directions, gates * hidden, hidden),
               g.drawn(f"{layer}/B", directions, 2 * gates * hidden)]
    states = []
    for _ in range(2 if op == "LSTM" else 1):
        zeros = [zeros_of(g, layer, x, hidden) for _ in range(directions)]
        states.append(zeros[0] if directions == 1 else g("Concat", layer, zeros, axis=0))
    time_major = g("Transpose", layer, [x], perm=[1, 0, 2])
    return g(op, layer, [time_major] + weights + [""] + states, outputs=2, hidden_size=hidden,
             direction="forward" if directions == 1 else "bidirectional", **attributes)


def sequence():
    g = Graph()
    y, _ = recurrent(g, "LSTM", "bidirectional", "input_1", 3, 4, 2)
    parts = g("Split", "bidirectional", [y, g.ints(1, 1)], outputs=2, axis=1)
    parts = [g("Squeeze", "bidirectional", [p, g.ints(1)]) for p in parts]
    parts = [g("Transpose", "bidirectional", [p], perm=[1, 0, 2]) for p in parts]
    x = g("Concat", "bidirectional", parts, axis=2)
    y, _ = recurrent(g, "LSTM", "lstm", x, 8, 5, 1)
    x = g("Transpose", "lstm", [g("Squeeze", "lstm", [y, g.ints(1)])], perm=[1, 0, 2])
    _, h = recurrent(g, "GRU", "gru", x, 5, 4, 1, linear_before_reset=1)
    x = g("Squeeze", "gru", [h, g.ints(0)])
    x = g("Sigmoid", "dense", [g.dense("dense", x, 4, 2)])
    g.save("keras_sequence", "input_1", ["unk__1", 5, 3], x, ["unk__2", 2])


image()
sequence()
