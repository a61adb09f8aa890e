"""Files that ONNX Runtime's optimizer writes give in Plait what they give in ONNX Runtime.

usage: optimized_test.py LIBRARY [NAME...]

LIBRARY is libplait.so. Models of random weights, written as exporters and quantizers write them, are saved by ONNX Runtime at the level
extended, which fuses their ops into those of com.microsoft, and at the level all, which may choose layouts of this machine: Plait refuses
these with what to do. The list of com.microsoft's ops in docs/ops.md is compared with those that this ONNX Runtime registers. Runs in the
environment of get_onnxruntime.sh; says NOT RUN and ends where there is none.
"""
import os
import sys
import tempfile

from differential_test import ROOT, Plait, Refused, has_onnxruntime
from encoders_test import GRAPHS as ENCODERS
from encoders_test import IDS, MASK, Session, operands, table
from graph_writer import Writer

LIMIT = 5e-5  # of the largest: f32, sums in other orders through a few layers
STEPS = 2     # of the result's scale: each layer rounds to 8 bits, halves in either way
IMAGE = ("image", "float32", ["batch_size", 3, 17, 16])
# Weights of 7 bits, as quantizers make them for processors without VNNI (`reduce_range`): ONNX Runtime adds products with unsigned codes
# in pairs of 16 bits there, which do not saturate with these: 2 x 255 x 64 = 32,640. See exact_codes.py.
CODES = (-64, 64)


# ---- Models of images ----

def conv(w, x, made, taken, kernel=1, stride=1, group=1, bias=True):
    weight = w.weight(made, taken // group, kernel, kernel, scale=(kernel * kernel * taken / group) ** -0.5)
    half = kernel // 2
    return w.op("Conv", [x, weight, *([w.weight(made, scale=0.1)] if bias else [])],
                {"kernel_shape": [kernel, kernel], "pads": [half] * 4, "strides": [stride, stride], "group": group})


def batch_norm(w, x, channels):
    import numpy
    spread = w.constant(numpy.abs(w.random.standard_normal(channels)) + 0.5)
    return w.op("BatchNormalization", [x, w.weight(channels), w.weight(channels, scale=0.1), w.weight(channels, scale=0.1), spread])


def relu6(w, x):
    return w.op("Clip", [x, w.constant(0.0), w.constant(6.0)])


def mobile_net():
    """Depthwise convolutions, squeeze and excitation, residual sums: each activation that an optimizer moves into a convolution."""
    w = Writer(21)
    x = w.op("Relu", [batch_norm(w, conv(w, "image", 8, 3, 3, 2, bias=False), 8)])
    for index, kind in enumerate(("Relu", "Tanh", "Sigmoid", "LeakyRelu", "HardSigmoid", "Clip")):
        y = conv(w, x, 16, 8)
        y = relu6(w, y) if kind == "Clip" else w.op(kind, [y], {"alpha": 0.1} if kind == "LeakyRelu" else {})
        y = relu6(w, batch_norm(w, conv(w, y, 16, 16, 3, 1, 16), 16))
        if index % 2:
            squeezed = w.op("GlobalAveragePool", [y])
            squeezed = conv(w, w.op("Relu", [conv(w, squeezed, 4, 16)]), 16, 4)
            y = w.op("Mul", [y, w.op("HardSigmoid", [squeezed], {"alpha": 1 / 6, "beta": 0.5})])
        x = w.op("Relu", [w.op("Add", [conv(w, y, 8, 16), x])])
    x = w.op("MaxPool", [x], {"kernel_shape": [2, 2], "strides": [2, 2]})
    x = w.op("Flatten", [w.op("GlobalAveragePool", [x])], {"axis": 1})
    x = w.op("Relu", [w.op("Gemm", [x, w.weight(12, 8), w.weight(12)], {"transB": 1})])
    w.op("Gemm", [x, w.weight(12, 5), w.weight(5)], outputs=["scores"])
    return w.file([IMAGE], ["scores"])


class QuantizedWriter(Writer):
    """Numbers in u8 between QuantizeLinear and DequantizeLinear, as a quantizer that has seen their extremes writes them."""

    def between(self, x, scale, zero=128):
        parameters = [self.constant(scale), self.constant(zero, "uint8")]
        return self.op("DequantizeLinear", [self.op("QuantizeLinear", [x, *parameters]), *parameters])

    def weight_of(self, *shape, scale):
        """One scale for each channel."""
        import numpy
        codes = self.constant(self.random.integers(*CODES, shape), "int8")
        scales = self.constant(numpy.abs(self.random.standard_normal(shape[0])) * scale + scale / 4)
        self.scales = dict(self.weights)[scales]
        return self.op("DequantizeLinear", [codes, scales, self.constant([0] * shape[0], "int8")], {"axis": 0})

    def bias_of(self, count, x_scale):
        codes = self.constant(self.random.integers(-2000, 2000, count), "int32")
        return self.op("DequantizeLinear", [codes, self.constant(self.scales * x_scale), self.constant([0] * count, "int32")], {"axis": 0})


def quantized_net():
    """Convolutions, sums, products, pools, activations, joins and a classifier, all quantized."""
    w = QuantizedWriter(22)

    def quantized_conv(x, made, taken, kernel, stride=1, group=1, scale=0.05, activation="Relu"):
        weight = w.weight_of(made, taken // group, kernel, kernel, scale=0.01 / kernel)
        half = kernel // 2
        y = w.op("Conv", [x, weight, w.bias_of(made, scale)],
                 {"kernel_shape": [kernel, kernel], "pads": [half] * 4, "strides": [stride, stride], "group": group})
        return w.between(w.op(activation, [y]) if activation else y, 0.05, 0 if activation == "Relu" else 128)

    x = quantized_conv(w.between("image", 0.02), 8, 3, 3, 2, scale=0.02)
    y = quantized_conv(x, 8, 8, 3, group=8)
    z = quantized_conv(y, 8, 8, 1, activation="")
    x = w.between(w.op("Add", [x, z]), 0.07)
    x = w.between(w.op("LeakyRelu", [x], {"alpha": 0.1}), 0.06)
    x = w.between(w.op("MaxPool", [x], {"kernel_shape": [3, 3], "strides": [1, 1], "pads": [1, 1, 1, 1]}), 0.06)
    gate = w.between(w.op("Sigmoid", [x]), 1 / 256, 0)
    y = w.between(w.op("Mul", [x, gate]), 0.06)
    x = w.between(w.op("Concat", [x, y], {"axis": 1}), 0.06)
    x = w.between(w.op("AveragePool", [x], {"kernel_shape": [2, 2], "strides": [2, 2]}), 0.05)
    x = w.between(w.op("GlobalAveragePool", [x]), 0.02)
    x = w.between(w.op("Flatten", [x], {"axis": 1}), 0.02)
    weight = w.weight_of(6, 16, scale=0.01)
    x = w.between(w.op("Gemm", [x, weight, w.bias_of(6, 0.02)], {"transB": 1}), 0.03)
    w.op("Identity", [w.between(w.op("Softmax", [x], {"axis": -1}), 1 / 256, 0)], outputs=["scores"])
    return w.file([IMAGE], ["scores"])


# ---- Models of text ----

def bert_of_opset_11():
    """As exporters wrote it when the optimizer's patterns were made: attention is one op then, and the embedding."""
    w = Writer(26)

    def projected(x, order):
        return w.op("Transpose", [w.op("Reshape", [w.linear(x, w.hidden, w.hidden), w.ints(0, 0, w.heads, w.head)])], {"perm": order})

    shape = w.op("Shape", ["input_ids"])
    length = w.op("Gather", [shape, w.constant(1, "int64")], {"axis": 0})
    row = w.op("Unsqueeze", [w.op("Range", [w.constant(0, "int64"), length, w.constant(1, "int64")])], {"axes": [0]})
    positions = w.op("Gather", [table(w, 64), w.op("Expand", [row, shape])])
    words = w.op("Add", [w.op("Gather", [table(w), "input_ids"]), positions])
    x = w.norm(w.op("Add", [words, w.op("Gather", [table(w, 2), "token_type_ids"])]))
    wide = w.op("Unsqueeze", [w.op("Unsqueeze", ["attention_mask"], {"axes": [1]})], {"axes": [2]})
    bias = w.op("Mul", [w.op("Sub", [w.constant(1.0), w.op("Cast", [wide], {"to": 1})]), w.constant(-10000.0)])
    for _ in range(2):
        query, key, value = (projected(x, order) for order in ([0, 2, 1, 3], [0, 2, 3, 1], [0, 2, 1, 3]))
        scores = w.op("Div", [w.op("MatMul", [query, key]), w.constant(w.head ** 0.5)])
        seen = w.op("MatMul", [w.op("Softmax", [w.op("Add", [scores, bias])], {"axis": 3}), value])
        x = w.norm(w.op("Add", [w.linear(w.join_heads(seen), w.hidden, w.hidden), x]))
        x = w.norm(w.op("Add", [w.feed_forward(x), x]))
    w.op("Identity", [x], outputs=["last_hidden_state"])
    return w.file([IDS, MASK, ("token_type_ids", *IDS[1:])], ["last_hidden_state"], 11)


class DynamicWriter(Writer):
    """Products in 8-bit integers; activations are quantized when they are known."""

    def linear(self, x, rows, columns, bias=True):
        names = [f"{part}_{len(self.nodes)}" for part in ("codes", "scale", "zero")]
        self.op("DynamicQuantizeLinear", [x], outputs=names)
        weight = self.constant(self.random.integers(*CODES, (rows, columns)), "int8")
        sums = self.op("MatMulInteger", [names[0], weight, names[2], self.constant(0, "int8")])
        scale = self.op("Mul", [names[1], self.constant(0.02 * rows ** -0.5)])
        out = self.op("Mul", [self.op("Cast", [sums], {"to": 1}), scale])
        return self.op("Add", [out, self.weight(columns, scale=0.1)]) if bias else out


def dynamic_encoder():
    w = DynamicWriter(23)
    x = w.op("Gather", [table(w), "input_ids"])
    bias = w.padding("attention_mask")
    for _ in range(2):
        x = w.norm(w.op("Add", [w.attention(x, bias), x]))
        x = w.norm(w.op("Add", [w.feed_forward(x), x]))
    w.op("Identity", [x], outputs=["last_hidden_state"])
    return w.file([IDS, MASK], ["last_hidden_state"])


def gelu_tanh(w, y):
    cube = w.op("Mul", [w.op("Pow", [y, w.constant(3.0)]), w.constant(0.044715)])
    inner = w.op("Mul", [w.op("Add", [y, cube]), w.constant(0.7978845608)])
    return w.op("Mul", [w.op("Mul", [y, w.constant(0.5)]), w.op("Add", [w.op("Tanh", [inner]), w.constant(1.0)])])


def gpt():
    """Norms before, a causal mask, Gelu by tanh, the head tied to the table."""
    w = Writer(24)
    words = table(w)
    length = w.size("input_ids", 1)
    square = w.op("Expand", [w.constant(-3.4028235e38), w.shape(length, length)])
    bias = w.op("Add", [w.op("Trilu", [square, w.constant(1, "int64")], {"upper": 1}), w.padding("attention_mask")])
    x = w.op("Gather", [words, "input_ids"])
    for _ in range(2):
        x = w.op("Add", [x, w.attention(w.norm(x), bias)])
        x = w.op("Add", [x, w.feed_forward(w.norm(x), lambda y: gelu_tanh(w, y))])
    w.op("MatMul", [w.norm(x), w.op("Transpose", [words], {"perm": [1, 0]})], outputs=["logits"])
    return w.file([IDS, MASK], ["logits"])


def products():
    """Transposed and scaled products, and gated rows with QuickGelu."""
    w = Writer(25)
    x = w.op("Gather", [table(w), "input_ids"])
    turned = w.op("Transpose", [x], {"perm": [0, 2, 1]})
    scores = w.op("Mul", [w.op("MatMul", [x, turned]), w.constant(0.125)])
    scores = w.op("Add", [scores, w.op("Squeeze", [w.padding("attention_mask"), w.ints(1)])])
    x = w.op("MatMul", [w.op("Softmax", [scores], {"axis": -1}), x])
    x = w.op("Add", [x, w.quick_gelu(w.linear(x, 32, 32))])
    by_token = w.op("Transpose", [x], {"perm": [1, 0, 2]})
    w.op("MatMul", [w.op("Transpose", [by_token], {"perm": [1, 0, 2]}), w.weight(32, 6)], outputs=["rows"])
    return w.file([IDS, MASK], ["rows"])


# By name: what makes the model, and ops that the optimizer must have made of it.
MODELS = {**{name: (make, ()) for name, make in ENCODERS.items()},
          "bert_of_opset_11": (bert_of_opset_11, ("Attention", "BiasGelu", "EmbedLayerNormalization", "SkipLayerNormalization")),
          "mobile_net": (mobile_net, ("FusedConv", "FusedGemm")),
          "quantized_net": (quantized_net, ("QLinearAdd", "QLinearMul", "QLinearAveragePool", "QLinearGlobalAveragePool", "QLinearConcat",
                                            "QLinearLeakyRelu", "QLinearSigmoid", "QGemm")),
          "dynamic_encoder": (dynamic_encoder, ("DynamicQuantizeMatMul",)),
          "gpt": (gpt, ("FastGelu",)),
          "products": (products, ("FusedMatMul", "QuickGelu"))}


def runtime(model, level, saved=None):
    import onnxruntime
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, f"ORT_{level}")
    if saved:
        options.optimized_model_filepath = saved
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def optimized(model, level, folder):
    path = os.path.join(folder, f"{level}.onnx")
    runtime(model, level, path)
    with open(path, "rb") as file:
        return file.read()


def worst_error(plait, model, quantized):
    """The largest difference from ONNX Runtime, of the largest result, or in steps of a quantized one."""
    import numpy
    theirs, ours = runtime(model, "DISABLE_ALL"), Session(plait, model)
    outputs, random, worst = [one.name for one in theirs.get_outputs()], numpy.random.default_rng(5), 0.0
    try:
        for batch, images, length in ((1, 1, 7), (3, 2, 20), (2, 3, 1)):
            given = operands(theirs, random, batch, images, length)
            for output, got, expected in zip(outputs, ours.run(given, outputs), theirs.run(outputs, given)):
                assert got.shape == expected.shape, f"{output}: {got.shape}, expected {expected.shape}"
                assert numpy.isfinite(expected).all(), f"{output}: not finite in ONNX Runtime"
                worst = max(worst, float(numpy.abs(got - expected).max() / (1 / 256 if quantized else numpy.abs(expected).max())))
    finally:
        ours.close()
    return worst


def faults_of(plait, name, folder):
    import onnx_file
    make, wanted = MODELS[name]
    model, quantized = make(), name == "quantized_net"
    file = optimized(model, "ENABLE_EXTENDED", folder)
    ops = onnx_file.op_types(file)
    fused = sorted(one.rpartition(".")[2] for one in ops if one.startswith("com.microsoft."))
    faults = [f"the optimizer made no {one}" for one in wanted if one not in fused]
    error = worst_error(plait, file, quantized)
    print(f"{name}: at most {error:.1e}; {' '.join(fused)}", flush=True)
    if not error <= (STEPS if quantized else LIMIT):
        faults.append(f"differs by {error:.1e}")
    file = optimized(model, "ENABLE_ALL", folder)
    if any(one.startswith("com.microsoft.nchwc.") for one in onnx_file.op_types(file)):
        try:
            Session(plait, file)
            faults.append("layouts of a machine are not refused")
        except Refused as refused:
            if "ORT_ENABLE_EXTENDED" not in refused.hint:
                faults.append(f"the refusal does not tell what to do: {refused}; {refused.hint}")
    elif not worst_error(plait, file, quantized) <= (STEPS if quantized else LIMIT):
        faults.append("differs at the level all")
    return faults


def faults_of_list():
    """docs/ops.md against the ops that this ONNX Runtime registers."""
    from onnxruntime.capi import onnxruntime_pybind11_state as state
    import onnxruntime
    with open(os.path.join(ROOT, "docs", "ops.md"), encoding="utf-8") as file:
        part = file.read().partition("\n## com.microsoft\n")[2]
    if f"ONNX Runtime {onnxruntime.__version__} " not in part:
        return [f"docs/ops.md is about another version than {onnxruntime.__version__}"]
    rows = [[cell.strip() for cell in line.split("|")[1:3]] for line in part.splitlines() if line.startswith("| ")]
    documented = {name: cpu == "yes" for name, cpu in rows if name != "op"}
    kernels = {one.op_name for one in state.get_all_opkernel_def()
               if one.domain == "com.microsoft" and one.provider == "CPUExecutionProvider"}
    registered = {one.name: one.name in kernels for one in state.get_all_operator_schema() if one.domain == "com.microsoft"}
    apart = {name for name in documented.keys() | registered.keys() if documented.get(name) != registered.get(name)}
    return [f"docs/ops.md and ONNX Runtime differ on {' '.join(sorted(apart))}"] if apart else []


def main():
    if not has_onnxruntime():
        return 0
    import onnxruntime
    onnxruntime.set_default_logger_severity(3)
    plait, faults = Plait(sys.argv[1]), {"com.microsoft": faults_of_list()}
    with tempfile.TemporaryDirectory() as folder:
        for name in sys.argv[2:] or MODELS:
            faults[name] = faults_of(plait, name, folder)
    for name, found in faults.items():
        for one in found:
            print(f"{name}: {one}")
    return 1 if any(faults.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
