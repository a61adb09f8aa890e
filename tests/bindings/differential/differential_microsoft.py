"""Ops of com.microsoft that ONNX Runtime's optimizer, quantizer and exporters write, for differential_graphs.py."""
import numpy

from differential_graphs import FLOATS
from differential_graphs import op as any_op

OPS = set()


def op(*names, **how):
    OPS.update(names)
    return any_op(*names, **how)


# Results of scales that are powers of two are never half-way between two steps of this one: engines may round halves in their own way.
STEP = 0.0371


def codes(b, shape, dtype, constant=None):
    info = numpy.iinfo(dtype)
    return b.add(b.random.integers(info.min, info.max + 1, size=tuple(shape)).astype(dtype), constant)


def parameters(b, dtype, scale=None, count=None):
    """A scale and a zero point, of one element or `count`, mostly constants."""
    shape = (count,) if count else b.pick([(), (), (1,)])
    scales = numpy.full(shape, scale) if scale else 2.0 ** b.random.integers(-6, -2, size=shape)
    zeros = b.random.integers(0, 9, size=shape)
    constant = True if b.chance(0.8) else None
    return b.add(numpy.asarray(scales, "float32"), constant), b.add(numpy.asarray(zeros, dtype), constant)


def zero_or_none(b, zero):
    return zero if b.chance(0.7) else None


@op("com.microsoft.QLinearAdd", "com.microsoft.QLinearMul", exact=True)
def qlinear_binary(b, name):
    dtype = b.pick(["uint8", "int8"])
    shape = b.sizes(b.integer(0, 3))
    other = [1 if b.chance(0.3) else size for size in shape][b.integer(0, len(shape)):]
    operands = []
    for dims in (shape, other):
        scale, zero = parameters(b, dtype)
        operands += [codes(b, dims, dtype), scale, zero_or_none(b, zero)]
    return operands + list(parameters(b, dtype, STEP)), {}, 1


def unary(b, scale, shape=None):
    dtype = b.pick(["uint8", "int8"])
    own, zero = parameters(b, dtype)
    result = parameters(b, dtype, scale)
    return [codes(b, shape if shape is not None else b.sizes(b.integer(1, 4)), dtype), own, zero_or_none(b, zero), *result]


@op("com.microsoft.QLinearSigmoid")
def qlinear_sigmoid(b, name):
    return unary(b, 1 / 256), {}, 1


@op("com.microsoft.QLinearLeakyRelu")
def qlinear_leaky_relu(b, name):
    return unary(b, STEP), {"alpha": b.pick([0.25, 0.5, 2.0])}, 1


@op("com.microsoft.QLinearSoftmax")
def qlinear_softmax(b, name):
    """Of the scale 1 / 256, which ONNX Runtime takes for granted, and without results near 1, which it does not saturate."""
    dtype, shape = b.pick(["uint8", "int8"]), [b.integer(2, 4) for _ in range(b.integer(1, 4))]
    least = numpy.asarray(numpy.iinfo(dtype).min, dtype)
    operands = [codes(b, shape, dtype), *parameters(b, dtype, 1 / 256), b.add(numpy.asarray(1 / 256, "float32"), True), b.add(least, True)]
    return operands, {"axis": b.integer(-len(shape), len(shape) - 1), "opset": b.pick([11, 13])}, 1


@op("com.microsoft.QLinearAveragePool")
def qlinear_average_pool(b, name):
    last = b.integer(0, 1)
    attributes = {"kernel_shape": [2, 3], "strides": [1, 2], "channels_last": last, "ceil_mode": b.integer(0, 1)}
    if b.chance(0.5):  # a window beyond the pads counts there in this op, and no longer in the standard's
        attributes.update(pads=[1, 0, 0, 1], count_include_pad=0 if attributes["ceil_mode"] else b.integer(0, 1))
    return unary(b, STEP, (b.integer(1, 2), 4, 6, 5)), attributes, 1


@op("com.microsoft.QLinearGlobalAveragePool")
def qlinear_global_average_pool(b, name):
    operands = unary(b, STEP, (b.integer(1, 2), 3, 4, 5))
    if operands[2] is None:
        operands[2] = b.add(numpy.asarray(0, operands[0].dtype))
    return operands, {"channels_last": b.integer(0, 1)}, 1


@op("com.microsoft.QLinearConcat", exact=True)
def qlinear_concat(b, name):
    dtype, shape, axis = b.pick(["uint8", "int8"]), [b.integer(1, 3) for _ in range(b.integer(1, 3))], 0
    axis = b.integer(-len(shape), len(shape) - 1)
    operands = list(parameters(b, dtype, STEP))
    for _ in range(b.integer(1, 3)):
        shape[axis] = b.integer(1, 4)
        operands += [codes(b, shape, dtype), *parameters(b, dtype)]
    return operands, {"axis": axis}, 1


@op("com.microsoft.QLinearWhere", exact=True)
def qlinear_where(b, name):
    dtype, shape = b.pick(["uint8", "int8"]), b.sizes(b.integer(1, 3))
    other = [1 if b.chance(0.3) else size for size in shape]
    operands = [b.add(b.random.integers(0, 2, size=tuple(shape)).astype("bool"))]
    for dims in (shape, other):
        operands += [codes(b, dims, dtype), *parameters(b, dtype)]
    return operands + list(parameters(b, dtype, STEP)), {}, 1


@op("com.microsoft.QLinearConv")
def qlinear_conv(b, name):
    dtype, last, group = b.pick(["uint8", "int8"]), b.integer(0, 1), b.pick([1, 2])
    weights = "int8" if dtype == "int8" else b.pick(["uint8", "int8"])
    x = codes(b, (b.integer(1, 2), 5, 6, 4) if last else (b.integer(1, 2), 4, 5, 6), dtype)
    w = codes(b, (6, 4 // group, 3, 2), weights, True)
    per_channel = b.chance(0.5)
    w_scale, w_zero = parameters(b, weights, count=6 if per_channel else None)
    w_zero = b.add(numpy.zeros(w_zero.shape, weights), True) if per_channel else w_zero
    bias = b.add(b.random.integers(-300, 300, size=6).astype("int32"), True) if b.chance(0.5) else None
    attributes = {"group": group, "pads": [1, 0, 1, 1], "strides": [1, 2], **({"channels_last": last} if last else {})}
    return [x, *parameters(b, dtype), w, w_scale, w_zero, *parameters(b, dtype, 0.371), bias], attributes, 1


@op("com.microsoft.QGemm", exact=True)
def qgemm(b, name):
    dtype = b.pick(["uint8", "int8"])
    weights = "int8" if dtype == "int8" else b.pick(["uint8", "int8"])
    m, k, n = (b.integer(1, 4) for _ in range(3))
    turned = b.integer(0, 1), b.integer(0, 1)
    per_column = b.chance(0.4)
    b_scale, b_zero = parameters(b, weights, count=n if per_column else None)
    c = b.add(b.random.integers(-300, 300, size=b.pick([(n,), (1, n), (m, n), (m, 1)])).astype("int32")) if b.chance(0.6) else None
    operands = [codes(b, (k, m) if turned[0] else (m, k), dtype), *parameters(b, dtype),
                codes(b, (n, k) if turned[1] else (k, n), weights), b_scale, b_zero, c]
    if b.chance(0.6):
        operands += parameters(b, dtype, 0.371)
    return operands, {"transA": turned[0], "transB": turned[1], "alpha": b.pick([1.0, 0.5])}, 1


@op("com.microsoft.MatMulIntegerToFloat")
def matmul_integer_to_float(b, name):
    dtype = b.pick(["uint8", "int8"])
    weights = "int8" if dtype == "int8" else b.pick(["uint8", "int8"])
    k, n = b.integer(1, 4), b.integer(1, 4)
    per_column = b.chance(0.4)
    a_scale, a_zero = parameters(b, dtype)
    b_scale, b_zero = parameters(b, weights, count=n if per_column else None)
    bias = b.new((n,), ["float32"]) if b.chance(0.5) else None
    return [codes(b, (*b.sizes(b.integer(0, 2)), b.integer(1, 3), k), dtype), codes(b, (k, n), weights), a_scale, b_scale,
            zero_or_none(b, a_zero), zero_or_none(b, b_zero), bias], {}, 1


@op("com.microsoft.DynamicQuantizeMatMul", finite=True)
def dynamic_matmul(b, name):
    k, n = b.integer(1, 4), b.integer(1, 4)
    b_scale, b_zero = parameters(b, "int8", count=n if b.chance(0.4) else None)
    # Whole numbers from -127 to 128 are their own codes, so that no half is rounded.
    x = b.random.integers(-127, 129, size=(b.integer(1, 3), k)).astype("float32")
    x.reshape(-1)[0] = 128
    x = numpy.concatenate([x, numpy.full((1, k), -127, "float32")])
    bias = b.new((n,), ["float32"]) if b.chance(0.5) else None
    return [b.add(x), codes(b, (k, n), "int8"), b_scale, zero_or_none(b, b_zero), bias], {}, 1


@op("com.microsoft.DynamicQuantizeLSTM", finite=True)
def dynamic_lstm(b, name):
    """One step from zeros: ONNX Runtime rounds all operands of products to 8 bits, which here are whole already."""
    ways = b.integer(1, 2)
    width, h = b.integer(1, 4), b.integer(1, 3)
    x = b.random.integers(-127, 129, size=(1, b.integer(1, 3), width)).astype("float32")
    x.reshape(-1)[0] = 128
    x = numpy.concatenate([x, numpy.full((1, 1, width), -127, "float32")], 1)
    count = (ways, 4 * h) if b.chance(0.5) else (ways,)
    sides = []
    for rows in (width, h):
        scale = b.add(2.0 ** b.random.integers(-14, -11, size=count).astype("float32"), True)
        sides.append((codes(b, (ways, rows, 4 * h), "int8", True), scale, b.add(numpy.zeros(count, "int8"), True)))
    bias = b.new((ways, 8 * h), ["float32"], constant=True) if b.chance(0.6) else None
    (w, w_scale, w_zero), (r, r_scale, r_zero) = sides
    return [b.add(x), w, r, bias, None, None, None, None, w_scale, w_zero, r_scale, r_zero], \
        {"hidden_size": h, "direction": "bidirectional" if ways == 2 else b.pick(["forward", "reverse"])}, 3


@op("com.microsoft.MatMulInteger16", exact=True)
def matmul_integer_16(b, name):
    k = b.integer(1, 4)
    return [b.add(b.random.integers(-300, 300, size=shape).astype("int16")) for shape in ((2, 3, k), (k, 2))], {}, 1


@op("com.microsoft.MatMulBnb4", finite=True)
def matmul_bnb4(b, name):
    n, k, block = b.integer(1, 5), b.pick([16, 48]), b.pick([16, 32])
    packed = b.add(b.random.integers(0, 256, size=n * k // 2).astype("uint8"), True)
    largest = b.add(b.random.random(-(-n * k // block)).astype("float32"), True)
    return [b.new((b.integer(1, 3), k), ["float32"]), packed, largest], \
        {"K": k, "N": n, "block_size": block, "quant_type": b.integer(0, 1)}, 1


@op("com.microsoft.QuantizeLinear", exact=True)
def quantize(b, name):
    x = b.take(["float32"], least=1, exact=True)
    if b.special:
        return None
    count = x.shape[0] if b.chance(0.4) else None
    dtype = b.pick(["uint8", "int8", "uint16", "int16"])
    if count == 0:
        return None
    scale = numpy.full((count,) if count else (), 0.25, "float32")
    return [x, b.add(scale), b.add(numpy.full(scale.shape, 4, dtype))], {"axis": 0} if count else {}, 1


@op("com.microsoft.DequantizeLinear")
def dequantize(b, name):
    dtype = b.pick(["uint8", "int8", "uint16", "int16"])
    count = b.integer(1, 3) if b.chance(0.4) else None
    scale, zero = parameters(b, dtype, count=count)
    return [codes(b, (2, count or 3), dtype), scale, zero], {"axis": 1} if count else {}, 1


ACTIVATIONS = {"Relu": [], "Tanh": [], "Sigmoid": [], "LeakyRelu": [0.25], "Clip": [-1.0, 2.0], "HardSigmoid": [0.25, 0.5]}


@op("com.microsoft.FusedConv", finite=True)
def fused_conv(b, name):
    n, group = b.integer(1, 2), b.pick([1, 2])
    x, w = b.new((n, 4, 5, 6), ["float32"]), b.new((2, 4 // group, 3, 3), ["float32"], constant=True if b.chance(0.7) else None)
    bias = b.new((2,), ["float32"]) if b.chance(0.6) else None
    summand = b.new((n, 2, 5, 3), ["float32"]) if b.chance(0.4) else None
    attributes = {"group": group, "pads": [1, 0, 1, 1], "strides": [1, 2]}
    if b.chance(0.85):
        kind = b.pick(sorted(ACTIVATIONS))
        attributes["activation"] = kind
        if ACTIVATIONS[kind]:
            attributes["activation_params"] = ACTIVATIONS[kind]
    return [x, w, bias, summand], attributes, 1


@op("com.microsoft.FusedGemm", finite=True)
def fused_gemm(b, name):
    m, k, n = (b.integer(1, 4) for _ in range(3))
    turned = b.integer(0, 1)
    kind = b.pick(["Relu", "Tanh", "Sigmoid", "LeakyRelu", "Elu", "Softplus", "Softsign", "HardSigmoid"])
    attributes = {"activation": kind, "transB": turned, "alpha": 0.5, "beta": 2.0}
    if kind in ("LeakyRelu", "Elu", "HardSigmoid"):
        attributes["activation_alpha"] = 0.25
    if kind == "HardSigmoid":
        attributes["activation_beta"] = 0.5
    c = b.new(b.pick([(n,), (1, n), (m, 1)]), ["float32"]) if b.chance(0.6) else None
    return [b.new((m, k), ["float32"]), b.new((n, k) if turned else (k, n), ["float32"]), c], attributes, 1


@op("com.microsoft.TransposeMatMul", finite=True)
def transpose_matmul(b, name):
    m, k, n = (b.integer(1, 4) for _ in range(3))
    turned = b.integer(0, 1), b.integer(0, 1)
    return [b.new((2, k, m) if turned[0] else (2, m, k), ["float32"]), b.new((2, n, k) if turned[1] else (2, k, n), ["float32"])], \
        {"transA": turned[0], "transB": turned[1], "alpha": 0.5}, 1


@op("com.microsoft.NhwcMaxPool", exact=True)
def nhwc_max_pool(b, name):
    x = codes(b, (b.integer(1, 2), 5, 6, 3), b.pick(["uint8", "int8"]))
    return [x], {"kernel_shape": [2, 3], "strides": [1, 2], **({"pads": [1, 0, 0, 1]} if b.chance(0.5) else {})}, 1


@op("com.microsoft.ConvTransposeWithDynamicPads", finite=True)
def dynamic_pads(b, name):
    group = b.pick([1, 2])
    w = b.new((4, 2, 3, 2), ["float32"], constant=True)
    pads = b.ints([b.integer(0, 1) for _ in range(4)]) if b.chance(0.8) else None
    bias = b.new((2 * group,), ["float32"]) if b.chance(0.5) else None
    return [b.new((1, 4, 4, 3), ["float32"]), w, pads, bias], {"group": group, "strides": [2, 1], "kernel_shape": [3, 2]}, 1


def masked_tokens(b, shape):
    """Every row sees its first key: where none is seen, the rounding of what is added decides."""
    mask = b.random.integers(0, 2, size=shape)
    mask[..., 0] = 1
    return mask.astype("int32")


def attention_mask(b, batch, s, total):
    kind = b.pick(["", "ends", "begins", "keys", "pairs"])
    ends = b.random.integers(1, total + 1, size=batch)
    if kind in ("ends", "begins"):
        begins = b.random.integers(0, ends) if kind == "begins" else []
        return b.add(numpy.concatenate([ends, begins]).astype("int32"), True)
    return None if not kind else b.add(masked_tokens(b, (batch, total) if kind == "keys" else (batch, s, total)), True)


@op("com.microsoft.Attention", "com.microsoft.QAttention", finite=True)
def attention(b, name):
    batch, s, heads, d, width = b.integer(1, 2), b.integer(1, 4), b.integer(1, 2), b.pick([2, 4]), b.integer(1, 5)
    own = b.pick([d, 2 * d]) if name.endswith(".Attention") else d
    parts = [heads * d, heads * d, heads * own]
    past = b.integer(1, 3) if own == d and b.chance(0.4) else 0
    attributes = {"num_heads": heads, "unidirectional": b.integer(0, 1), **({"qkv_hidden_sizes": parts} if own != d else {})}
    if b.chance(0.3):
        attributes["scale"] = 0.5
    mask = attention_mask(b, batch, s, past + s)
    state = b.new((2, batch, heads, past, d), ["float32"]) if past else None
    bias = b.new((sum(parts),), ["float32"])
    if name.endswith(".Attention"):
        added = b.new((b.pick([1, batch]), b.pick([1, heads]), s, past + s), ["float32"]) if b.chance(0.3) else None
        x, w = b.new((batch, s, width), ["float32"]), b.new((width, sum(parts)), ["float32"], constant=True)
        return [x, w, bias, mask, state, added], attributes, 2 if past else 1
    weights = b.pick(["uint8", "int8"])
    w_scale, w_zero = parameters(b, weights, count=sum(parts) if b.chance(0.4) else None)
    x_scale, x_zero = parameters(b, "uint8", 1 / 1024)
    w_zero = zero_or_none(b, w_zero)
    return [codes(b, (batch, s, width), "uint8"), codes(b, (width, sum(parts)), weights, True), bias, x_scale, w_scale, mask,
            x_zero if w_zero else zero_or_none(b, x_zero), w_zero, state], attributes, 2 if past else 1


@op("com.microsoft.EmbedLayerNormalization", finite=True)
def embedding(b, name):
    batch, s, h = b.integer(1, 2), b.integer(1, 4), b.integer(2, 5)

    def below(count):
        return b.add(b.random.integers(0, count, size=(batch, s)).astype("int32"))

    tables = [b.new((count, h), ["float32"], constant=True) for count in (7, 6, 2)]
    segments = below(2) if b.chance(0.5) else None
    mask = b.add(b.random.integers(0, 2, size=(batch, s)).astype("int32")) if b.chance(0.5) else None
    positions = below(6) if b.chance(0.5) else None
    return [below(7), segments, *tables[:2], tables[2] if segments else None, b.new((h,), ["float32"]), b.new((h,), ["float32"]), mask,
            positions], {"epsilon": 1e-3}, b.integer(1, 3)


@op("com.microsoft.QEmbedLayerNormalization", finite=True)
def quantized_embedding(b, name):
    batch, s, h = b.integer(1, 2), b.integer(1, 4), b.integer(2, 5)
    ids, kinds = (b.add(b.random.integers(0, count, size=(batch, s)).astype("int32")) for count in (7, 2))
    quantized = [codes(b, shape, "uint8", True) for shape in ((7, h), (6, h), (2, h), (h,), (h,))]
    scales, zeros = zip(*((b.add(numpy.asarray(1 / 64, "float32"), True), b.add(numpy.asarray(b.integer(0, 9), "uint8"), True))
                          for _ in range(5)))
    segments = b.chance(0.5)
    mask = b.add(b.random.integers(0, 2, size=(batch, s)).astype("int32")) if b.chance(0.5) else None
    without = [i for i in range(5) if segments or i != 2]
    table, scale, zero = ([one if i in without else None for i, one in enumerate(side)] for side in (quantized, scales, zeros))
    return [ids, kinds if segments else None, *table, mask, *scale, *zero], {"epsilon": 1e-3}, 2


@op("com.microsoft.CropAndResize", finite=True)
def crop_and_resize(b, name):
    n, k = b.integer(1, 3), b.integer(1, 3)
    begins = b.random.integers(-2, 6, size=(k, 2)) / 8
    boxes = b.add(numpy.concatenate([begins, begins + b.random.integers(-1, 7, size=(k, 2)) / 8], 1).astype("float32"))
    size = b.ints([b.integer(1, 4), b.integer(1, 4)], "int32")
    return [b.new((n, b.integer(1, 3), 5, 9), ["float32"]), boxes, b.add(b.random.integers(0, n, size=k).astype("int32")), size], \
        {"mode": b.pick(["bilinear", "nearest"]), "extrapolation_value": 0.5}, 1


@op("com.microsoft.CDist", finite=True)
def distances(b, name):
    n = b.integer(1, 4)
    # Apart from each other, since a root magnifies what is left of equal squares.
    near, far = b.random.integers(0, 4, size=(b.integer(1, 4), n)), b.random.integers(6, 10, size=(b.integer(1, 4), n))
    dtype = b.pick(["float32", "float64"])
    return [b.add(near.astype(dtype)), b.add(far.astype(dtype))], {"metric": b.pick(["sqeuclidean", "euclidean"])}, 1


@op("com.microsoft.ExpandDims", exact=True)
def expand_dims(b, name):
    x = b.take(FLOATS + ["int64", "bool"])
    return [x, b.ints(numpy.asarray(b.integer(-x.rank - 1, x.rank)), "int32")], {}, 1


@op("com.microsoft.GatherND", exact=True)
def gather_nd(b, name):
    x = b.take(FLOATS, least=1)
    if 0 in x.shape:
        return None
    depth = b.integer(1, x.rank)
    at = numpy.stack([b.random.integers(0, size, size=(3,)) for size in x.shape[:depth]], -1)
    return [x, b.add(at.astype(b.pick(["int32", "int64"])))], {}, 1


@op("com.microsoft.GridSample", finite=True)
def grid_sample(b, name):
    n = b.integer(1, 2)
    grid = (b.random.integers(-9, 10, size=(n, 3, 2, 2)) / 8.3).astype("float32")
    return [b.new((n, 2, 4, 5), ["float32"]), b.add(grid)], \
        {"mode": b.pick(["bilinear", "nearest", "bicubic"]), "padding_mode": b.pick(["zeros", "border", "reflection"]),
         "align_corners": b.integer(0, 1)}, 1


@op("com.microsoft.NGramRepeatBlock", exact=True)
def ngram_block(b, name):
    batch, vocabulary = b.integer(1, 3), b.integer(2, 4)
    ids = b.random.integers(0, vocabulary, size=(batch, b.integer(1, 9))).astype("int64")
    scores = b.add(b.random.standard_normal((batch, vocabulary)).astype("float32"))
    return [b.add(ids), scores], {"ngram_size": b.integer(1, 4)}, 1


@op("com.microsoft.Pad", exact=True)
def pad(b, name):
    x = b.take(["float32"], least=1)
    pads = [b.integer(0, 2) for _ in range(2 * x.rank)]
    value = b.add(numpy.full(b.pick([(), (1,)]), 3, x.dtype)) if b.chance(0.5) else None
    return [x, b.ints([pads] if b.chance(0.3) else pads), value], {}, 1


@op("com.microsoft.Range", exact=True)
def range_(b, name):
    shape, dtype = b.pick([(), (1,)]), b.pick(["int32", "int64", "float32"])
    bounds = [b.ints(numpy.full(shape, one), dtype) for one in (b.integer(0, 2), b.integer(3, 7), b.integer(1, 2))]
    return bounds[:b.integer(2, 3)], {}, 1


@op("com.microsoft.Trilu", exact=True)
def trilu(b, name):
    x = b.take(["float32", "float64", "int64"], least=2)
    return [x, b.ints(numpy.asarray(b.integer(-2, 2))) if b.chance(0.5) else None], {"upper": b.integer(0, 1)}, 1


@op("com.microsoft.UnfoldTensor", exact=True)
def unfold(b, name):
    x = b.new((b.integer(1, 3), b.integer(3, 7)), FLOATS)
    return [x], {"size": b.integer(1, 3), "step": b.integer(1, 3)}, 1


@op("com.microsoft.Unique", exact=True)
def unique(b, name):
    return [b.add(b.random.integers(0, 5, size=b.integer(1, 9)).astype("float32"))], {}, 3


@op("com.microsoft.ScaledSiLU", finite=True)
def scaled_silu(b, name):
    return [b.take(["float32"]), b.new((), ["float32"]) if b.chance(0.5) else None], {"alpha": 0.5}, 1


@op("com.microsoft.GatedAdd", finite=True)
def gated_add(b, name):
    x = b.take(["float32"], least=1)
    return [x, b.like(x), b.new((*x.shape[:-1], 1), ["float32"])], {}, 1
