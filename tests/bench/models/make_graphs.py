#!/usr/bin/env python3
"""Makes models of images, text and sound with random weights as ONNX files, for the benchmark of plain graphs.

    make_graphs.py FOLDER [NAME ...]

The architectures are the published ones: ResNet-50 (He et al. 2015), MobileNet v3 large (Howard et al. 2019), a detector of the
size and structure of YOLOv8n, BERT base (Devlin et al. 2018) and the encoder of Whisper tiny (Radford et al. 2022), in the ops that
exporters of PyTorch write. Weights are drawn so that activations keep their size through the layers. Two of them also in 8 bits, as
ONNX Runtime's quantizers write them. What is there already is not made again. Needs numpy.
"""
import math
import os
import sys
from pathlib import Path

import numpy

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "bindings" / "differential"))
import onnx_file  # noqa: E402


class Writer:
    """Nodes and weights of one file. Values are names."""

    def __init__(self, seed):
        self.random = numpy.random.default_rng(seed)
        self.nodes, self.weights = [], []

    def op(self, kind, *inputs, outputs=1, **attributes):
        made = [f"{kind.lower()}_{len(self.nodes)}_{i}" for i in range(outputs)]
        self.nodes.append(onnx_file.node(kind, inputs, made, attributes, f"{kind}_{len(self.nodes)}"))
        return made[0] if outputs == 1 else made

    def constant(self, array, dtype=None):
        name = f"w_{len(self.weights)}"
        self.weights.append((name, numpy.array(array, dtype, order="C")))
        return name

    def ints(self, *numbers):
        return self.constant(numbers, numpy.int64)

    def number(self, value):
        return self.constant(value, numpy.float32)

    def normal(self, shape, spread):
        return self.constant(self.random.standard_normal(shape, numpy.float32) * numpy.float32(spread))

    # ---- Layers ----

    def conv(self, x, read, made, kernel, stride=1, group=1, gain=1.0, bias=True):
        taps = kernel if isinstance(kernel, tuple) else (kernel, kernel)
        fan = read // group * math.prod(taps)
        operands = [x, self.normal((made, read // group, *taps), gain * math.sqrt(2 / fan))]
        if bias:
            operands.append(self.normal((made,), 0.01))
        return self.op("Conv", *operands, kernel_shape=list(taps), strides=[stride] * len(taps),
                       pads=[tap // 2 for tap in taps] * 2, dilations=[1] * len(taps), group=group)

    def batch_norm(self, x, channels, gain=1.0):
        draw = self.random.uniform
        rows = [draw(0.8, 1.2, channels) * gain, draw(-0.1, 0.1, channels), draw(-0.1, 0.1, channels), draw(0.8, 1.2, channels)]
        return self.op("BatchNormalization", x, *(self.constant(row, numpy.float32) for row in rows), epsilon=1e-5)

    def linear(self, x, read, made, bias=True):
        y = self.op("MatMul", x, self.normal((read, made), 1 / math.sqrt(read)))
        return self.op("Add", self.normal((made,), 0.01), y) if bias else y

    def layer_norm(self, x, size):
        return self.op("LayerNormalization", x, self.constant(numpy.ones(size, numpy.float32)),
                       self.constant(numpy.zeros(size, numpy.float32)), axis=-1, epsilon=1e-5)

    def gelu(self, x):
        """As written by exporters: 0.5 x (1 + erf(x / sqrt 2))."""
        part = self.op("Add", self.op("Erf", self.op("Div", x, self.number(math.sqrt(2)))), self.number(1))
        return self.op("Mul", self.op("Mul", x, part), self.number(0.5))

    def heads(self, x, heads, size, perm):
        return self.op("Transpose", self.op("Reshape", x, self.ints(0, 0, heads, size)), perm=perm)

    def attention(self, x, width, heads, mask=None, key_bias=True):
        size = width // heads
        q = self.heads(self.linear(x, width, width), heads, size, [0, 2, 1, 3])
        k = self.heads(self.linear(x, width, width, key_bias), heads, size, [0, 2, 3, 1])
        v = self.heads(self.linear(x, width, width), heads, size, [0, 2, 1, 3])
        scores = self.op("Div", self.op("MatMul", q, k), self.number(math.sqrt(size)))
        if mask:
            scores = self.op("Add", scores, mask)
        made = self.op("MatMul", self.op("Softmax", scores, axis=-1), v)
        joined = self.op("Reshape", self.op("Transpose", made, perm=[0, 2, 1, 3]), self.ints(0, 0, width))
        return self.linear(joined, width, width)

    def save(self, path, inputs, outputs, opset=17):
        part = path.with_suffix(".part")
        part.write_bytes(onnx_file.model(self.nodes, inputs, outputs, self.weights, opset))
        os.replace(part, path)


def codes_of(numbers, axes):
    """Codes (int8) of weights, and their scales over `axes`: the largest magnitude is 127."""
    scales = numpy.abs(numbers).max(axis=axes, keepdims=True) / 127
    return numpy.rint(numbers / scales).astype(numpy.int8), scales.astype(numpy.float32).reshape(-1)


class StaticWriter(Writer):
    """Static quantization: QuantizeLinear and DequantizeLinear around convolutions, sums and pools. Norms are in the convolutions."""

    @staticmethod
    def range_of(x):
        """Scale and zero point of a value: of what a Relu leaves, half the range."""
        return (4 / 255, 0) if x.startswith("relu") else (8 / 255, 128)

    def __init__(self, seed):
        super().__init__(seed)
        self.coded = {}

    def through(self, x):
        """The value, rounded to codes."""
        if x not in self.coded:
            scale, zero = self.range_of(x)
            scale, zero = self.number(scale), self.constant(zero, numpy.uint8)
            codes = super().op("QuantizeLinear", x, scale, zero)
            self.coded[x] = super().op("DequantizeLinear", codes, scale, zero)
        return self.coded[x]

    def op(self, kind, *inputs, **attributes):
        if kind in ("Conv", "Add", "MaxPool", "GlobalAveragePool"):
            rows = 1 if kind == "Conv" else len(inputs)  # weights and biases are codes already
            inputs = [self.through(x) for x in inputs[:rows]] + list(inputs[rows:])
        return super().op(kind, *inputs, **attributes)

    def conv(self, x, read, made, kernel, stride=1, group=1, gain=1.0, bias=True):
        taps = (kernel, kernel)
        fan = read // group * math.prod(taps)
        codes, scales = codes_of(self.random.standard_normal((made, read // group, *taps)) * gain * math.sqrt(2 / fan), (1, 2, 3))
        zero = self.constant(numpy.zeros(made, numpy.int8))
        weight = self.op("DequantizeLinear", self.constant(codes), self.constant(scales), zero, axis=0)
        sums = scales * numpy.float32(self.range_of(x)[0])
        row = numpy.rint(self.random.standard_normal(made) * 0.01 / sums).astype(numpy.int32)
        shift = self.op("DequantizeLinear", self.constant(row), self.constant(sums), axis=0)
        return self.op("Conv", x, weight, shift, kernel_shape=list(taps), strides=[stride] * 2, pads=[kernel // 2] * 4,
                       dilations=[1, 1], group=group)

    def batch_norm(self, x, channels, gain=1.0):
        return x


class DynamicWriter(Writer):
    """Dynamic quantization: products by weights are of codes, whose scale each run finds."""

    def linear(self, x, read, made, bias=True):
        codes, scales = codes_of(self.random.standard_normal((read, made)) / math.sqrt(read), (0, 1))
        a, scale, zero = self.op("DynamicQuantizeLinear", x, outputs=3)
        sums = self.op("MatMulInteger", a, self.constant(codes), zero, self.constant(0, numpy.int8))
        y = self.op("Mul", self.op("Cast", sums, to=1), self.op("Mul", scale, self.constant(scales[0], numpy.float32)))
        return self.op("Add", self.normal((made,), 0.01), y) if bias else y


def resnet50(path, writer=Writer):
    g = writer(1)

    def unit(x, read, made, kernel, stride=1, gain=1.0):
        return g.batch_norm(g.conv(x, read, made, kernel, stride, bias=False), made, gain)

    x = g.op("Relu", unit("image", 3, 64, 7, 2))
    x = g.op("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
    read = 64
    for stage, (width, blocks) in enumerate(((64, 3), (128, 4), (256, 6), (512, 3))):
        for block in range(blocks):
            stride = 2 if stage and not block else 1
            y = g.op("Relu", unit(x, read, width, 1))
            y = g.op("Relu", unit(y, width, width, 3, stride))
            y = unit(y, width, 4 * width, 1, gain=0.3)
            x = g.op("Relu", g.op("Add", y, x if block else unit(x, read, 4 * width, 1, stride, 0.7)))
            read = 4 * width
    x = g.op("Flatten", g.op("GlobalAveragePool", x), axis=1)
    g.nodes.append(onnx_file.node("Gemm", [x, g.normal((1000, 2048), 0.02), g.normal((1000,), 0.01)], ["logits"], {"transB": 1}, "fc"))
    g.save(path, [("image", "float32", ["batch", 3, 224, 224])], ["logits"])


# Kernel, expansion, channels, squeeze and excitation, hard swish instead of ReLU, stride.
MOBILE = [(3, 16, 16, 0, 0, 1), (3, 64, 24, 0, 0, 2), (3, 72, 24, 0, 0, 1), (5, 72, 40, 1, 0, 2), (5, 120, 40, 1, 0, 1),
          (5, 120, 40, 1, 0, 1), (3, 240, 80, 0, 1, 2), (3, 200, 80, 0, 1, 1), (3, 184, 80, 0, 1, 1), (3, 184, 80, 0, 1, 1),
          (3, 480, 112, 1, 1, 1), (3, 672, 112, 1, 1, 1), (5, 672, 160, 1, 1, 2), (5, 960, 160, 1, 1, 1), (5, 960, 160, 1, 1, 1)]


def mobilenet_v3(path):
    g = Writer(2)
    x, read = g.op("HardSwish", g.conv("image", 3, 16, 3, 2)), 16
    for kernel, wide, made, squeezes, swish, stride in MOBILE:
        act = "HardSwish" if swish else "Relu"
        y = g.op(act, g.conv(x, read, wide, 1)) if wide != read else x
        y = g.op(act, g.conv(y, wide, wide, kernel, stride, group=wide))
        if squeezes:
            few = max(8, (wide // 4 + 4) // 8 * 8)
            s = g.op("Relu", g.conv(g.op("GlobalAveragePool", y), wide, few, 1))
            y = g.op("Mul", g.op("HardSigmoid", g.conv(s, few, wide, 1), alpha=1 / 6, beta=0.5), y)
        y = g.conv(y, wide, made, 1, gain=0.7)
        x = g.op("Add", y, x) if stride == 1 and read == made else y
        read = made
    x = g.op("HardSwish", g.conv(x, read, 960, 1))
    x = g.op("Flatten", g.op("GlobalAveragePool", x), axis=1)
    x = g.op("HardSwish", g.op("Gemm", x, g.normal((1280, 960), 0.05), g.normal((1280,), 0.01), transB=1))
    g.nodes.append(onnx_file.node("Gemm", [x, g.normal((1000, 1280), 0.03), g.normal((1000,), 0.01)], ["logits"], {"transB": 1}, "fc"))
    g.save(path, [("image", "float32", ["batch", 3, 224, 224])], ["logits"])


def yolo_n(path):
    """Backbone, feature pyramid and heads of YOLOv8n (3.2 million weights, 8.7 GFLOP at 640 x 640), without decoding boxes."""
    g = Writer(3)

    def unit(x, read, made, kernel=1, stride=1):
        y = g.conv(x, read, made, kernel, stride)
        return g.op("Mul", y, g.op("Sigmoid", y))

    def block(x, read, made, count, adds):
        half = made // 2
        parts = list(g.op("Split", unit(x, read, made), g.ints(half, half), outputs=2, axis=1))
        for _ in range(count):
            y = unit(unit(parts[-1], half, half, 3), half, half, 3)
            parts.append(g.op("Add", parts[-1], y) if adds else y)
        return unit(g.op("Concat", *parts, axis=1), (2 + count) * half, made)

    def larger(x):
        return g.op("Resize", x, "", g.constant([1, 1, 2, 2], numpy.float32), mode="nearest", nearest_mode="floor",
                    coordinate_transformation_mode="asymmetric")

    x = unit(unit("image", 3, 16, 3, 2), 16, 32, 3, 2)
    x = unit(block(x, 32, 32, 1, True), 32, 64, 3, 2)
    small = block(x, 64, 64, 2, True)
    middle = block(unit(small, 64, 128, 3, 2), 128, 128, 2, True)
    x = block(unit(middle, 128, 256, 3, 2), 256, 256, 1, True)
    pools = [unit(x, 256, 128)]
    for _ in range(3):
        pools.append(g.op("MaxPool", pools[-1], kernel_shape=[5, 5], strides=[1, 1], pads=[2, 2, 2, 2]))
    large = unit(g.op("Concat", *pools, axis=1), 512, 256)
    middle = block(g.op("Concat", larger(large), middle, axis=1), 384, 128, 1, False)
    small = block(g.op("Concat", larger(middle), small, axis=1), 192, 64, 1, False)
    middle = block(g.op("Concat", unit(small, 64, 64, 3, 2), middle, axis=1), 192, 128, 1, False)
    large = block(g.op("Concat", unit(middle, 128, 128, 3, 2), large, axis=1), 384, 256, 1, False)
    results = []
    for x, read in ((small, 64), (middle, 128), (large, 256)):
        boxes = g.conv(unit(unit(x, read, 64, 3), 64, 64, 3), 64, 64, 1)
        classes = g.conv(unit(unit(x, read, 80, 3), 80, 80, 3), 80, 80, 1)
        results.append(g.op("Reshape", g.op("Concat", boxes, classes, axis=1), g.ints(0, 144, -1)))
    g.nodes.append(onnx_file.node("Concat", results, ["boxes"], {"axis": 2}, "boxes"))
    g.save(path, [("image", "float32", [1, 3, 640, 640])], ["boxes"])


def bert_base(path, writer=Writer):
    g = writer(4)
    width, heads = 768, 12
    x = g.op("Gather", g.normal((30522, width), 0.02), "input_ids")
    x = g.op("Add", x, g.op("Gather", g.normal((2, width), 0.02), "token_type_ids"))
    length = g.op("Gather", g.op("Shape", "input_ids"), g.constant(1, numpy.int64))
    places = g.op("Slice", g.constant(numpy.arange(512)[None], numpy.int64), g.ints(0), g.op("Unsqueeze", length, g.ints(0)), g.ints(1))
    x = g.layer_norm(g.op("Add", x, g.op("Gather", g.normal((512, width), 0.02), places)), width)
    mask = g.op("Cast", g.op("Unsqueeze", "attention_mask", g.ints(1, 2)), to=1)
    mask = g.op("Mul", g.op("Sub", g.number(1), mask), g.number(numpy.finfo(numpy.float32).min))
    for _ in range(12):
        x = g.layer_norm(g.op("Add", g.attention(x, width, heads, mask), x), width)
        y = g.linear(g.gelu(g.linear(x, width, 4 * width)), 4 * width, width)
        x = g.layer_norm(g.op("Add", y, x), width)
    g.nodes.append(onnx_file.node("Identity", [x], ["last_hidden_state"], {}, "last"))
    g.save(path, [(name, "int64", ["batch", "sequence"]) for name in ("input_ids", "attention_mask", "token_type_ids")],
           ["last_hidden_state"])


def whisper_tiny_encoder(path):
    g = Writer(5)
    width, heads = 384, 6
    x = g.gelu(g.conv("input_features", 80, width, (3,)))
    x = g.op("Transpose", g.gelu(g.conv(x, width, width, (3,), 2)), perm=[0, 2, 1])
    x = g.op("Add", x, g.normal((1500, width), 0.1))
    for _ in range(4):
        x = g.op("Add", x, g.attention(g.layer_norm(x, width), width, heads, key_bias=False))
        y = g.linear(g.gelu(g.linear(g.layer_norm(x, width), width, 4 * width)), 4 * width, width)
        x = g.op("Add", x, y)
    g.nodes.append(onnx_file.node("Identity", [g.layer_norm(x, width)], ["last_hidden_state"], {}, "last"))
    g.save(path, [("input_features", "float32", ["batch", 80, 3000])], ["last_hidden_state"])


MODELS = {"resnet50": resnet50, "mobilenet_v3": mobilenet_v3, "yolo_n": yolo_n, "bert_base": bert_base,
          "whisper_tiny_encoder": whisper_tiny_encoder,
          "resnet50_static_8_bits": lambda path: resnet50(path, StaticWriter),
          "bert_base_dynamic_8_bits": lambda path: bert_base(path, DynamicWriter)}


def make(folder, names=tuple(MODELS)):
    """The files' paths by name."""
    folder.mkdir(parents=True, exist_ok=True)
    out = {}
    for name in names:
        out[name] = folder / f"{name}.onnx"
        if not out[name].exists():
            MODELS[name](out[name])
    return out


if __name__ == "__main__":
    make(Path(sys.argv[1]), sys.argv[2:] or tuple(MODELS))
