"""Products, norms, convolutions, quantisation and attention, ONNX's own and com.microsoft's, for differential_graphs.py."""
import numpy

from differential_graphs import FLOATS, op


@op("MatMul", "com.microsoft.FusedMatMul")
def matmul(b, name):
    if name != "MatMul" and b.chance(0.5):
        return transposed_matmul(b)
    x = b.take(FLOATS, least=2)
    shape = [x.shape[-1], b.integer(1, 4)]
    batch = [1 if b.chance(0.3) else size for size in x.shape[:-2]]
    y = b.like(x, (batch if b.chance(0.6) else []) + shape)
    return [x, y], {"alpha": 0.5} if name != "MatMul" else {}, 1


def transposed_matmul(b):
    """FusedMatMul may have the first dim of a matrix before those of the batch."""
    q, k, n, batch = b.integer(1, 4), b.integer(1, 4), b.integer(1, 4), [b.integer(1, 3) for _ in range(b.integer(1, 2))]
    attributes, operands = {"alpha": 0.5}, []
    for side, (first, last) in (("A", (q, k)), ("B", (k, n))):
        turned, inside = b.integer(0, 1), b.integer(0, 1)
        first, last = (last, first) if turned else (first, last)
        attributes.update({f"trans{side}": turned, f"transBatch{side}": inside})
        operands.append(b.new([first, *batch, last] if inside else [*batch, first, last]))
    return operands, attributes, 1


@op("Gemm")
def gemm(b, name):
    x = b.take(FLOATS, rank=2)
    k, n = x.shape[1], b.integer(1, 4)
    if not k:  # ONNX Runtime leaves beta out
        return None
    transposed = b.integer(0, 1)
    c = b.new(b.pick([(n,), (1, n), (x.shape[0], 1), ()])) if b.chance(0.6) else None
    return [x, b.like(x, (n, k) if transposed else (k, n)), c], {"transB": transposed, "alpha": 0.5, "beta": 2.0}, 1


@op("MatMulInteger", exact=True)
def matmul_integer(b, name):
    x, y = b.new((2, 3), ["uint8"]), b.new((3, 4), ["uint8", "int8"])
    zeros = [b.add(numpy.asarray(2, one.dtype)) if b.chance(0.5) else None for one in (x, y)]
    return [x, y] + zeros, {}, 1


@op("LayerNormalization", "RMSNormalization", "com.microsoft.SimplifiedLayerNormalization")
def normalize(b, name):
    x = b.take(FLOATS, least=1)
    if 0 in x.shape:
        return None
    bias = [b.new((x.shape[-1],))] if name == "LayerNormalization" and b.chance(0.6) else []
    return [x, b.new((x.shape[-1],))] + bias, {"epsilon": 1e-3}, 1


@op("com.microsoft.SkipLayerNormalization", "com.microsoft.SkipSimplifiedLayerNormalization")
def skip_normalize(b, name):
    x = b.take(FLOATS, rank=3)
    if 0 in x.shape:
        return None
    row = (x.shape[-1],)
    rest = [b.new(row) if b.chance(0.5) else None for _ in range(2 if "Simplified" not in name else 1)]
    return [x, b.like(x), b.new(row)] + rest, {"epsilon": 1e-3}, 1


@op("InstanceNormalization", finite=True)
def instance_normalize(b, name):
    x = b.new((b.integer(1, 2), 3, 4))
    return [x, b.new((3,)), b.new((3,))], {"epsilon": 1e-3}, 1


@op("BatchNormalization", finite=True)
def batch_normalize(b, name):
    x = b.new((b.integer(1, 2), 3, 4))
    return [x] + [b.new((3,)) for _ in range(3)] + [b.add(b.random.random(3).astype("float32") + 0.5)], {"epsilon": 1e-3}, 1


@op("Conv", finite=True)
def conv(b, name):
    x = b.new((b.integer(1, 2), 4, 5, 6))
    group = b.pick([1, 2])
    return [x, b.new((2, 4 // group, 3, 3)), b.new((2,)) if b.chance(0.5) else None], \
        {"group": group, "pads": [1, 0, 1, 1], "strides": [1, 2]}, 1


@op("QuantizeLinear", exact=True)
def quantize(b, name):
    x = b.take(FLOATS, exact=True)
    return None if b.special else ([x, b.add(numpy.asarray(0.25, "float32")), b.add(numpy.asarray(3, b.pick(["uint8", "int8"])))], {}, 1)


@op("DequantizeLinear")
def dequantize(b, name):
    x = b.take(["uint8", "int8"])
    zero = b.add(numpy.asarray(2, x.dtype)) if b.chance(0.6) else None
    return [x, b.add(numpy.asarray(0.5, "float32")), zero], {}, 1


@op("DynamicQuantizeLinear")
def dynamic_quantize(b, name):
    x = b.add(numpy.zeros((2, 3), "float32")) if b.chance(0.3) else b.add(b.random.integers(-8, 9, size=(3, 4)).astype("float32"))
    return [x], {}, 3


def heads_of(b, heads, length, size, flat):
    return b.new((2, length, heads * size) if flat else (2, heads, length, size))


@op("Attention", finite=True)
def attention(b, name):
    flat, g, r, t, s = b.chance(0.5), b.integer(1, 2), b.integer(1, 2), b.integer(1, 4), b.integer(1, 3)
    q, k, v = heads_of(b, g * r, s, 4, flat), heads_of(b, g, t, 4, flat), heads_of(b, g, t, 6, flat)
    mask = None
    if b.chance(0.5):
        mask = b.new((s, t), ["bool"]) if b.chance(0.5) else b.new((s, t))
    heads = {"q_num_heads": g * r, "kv_num_heads": g} if flat else {}
    return [q, k, v, mask], {**heads, "is_causal": b.integer(0, 1) if mask is None else 0}, 1


@op("RotaryEmbedding", "com.microsoft.RotaryEmbedding", finite=True)
def rotary(b, name):
    x = b.new((2, 3, 4, 8))
    positions = b.add(b.random.integers(0, 6, size=(2, 4)).astype("int64"))
    cos, sin = b.new((6, 4)), b.new((6, 4))
    operands = [x, positions, cos, sin] if name.startswith("com") else [x, cos, sin, positions]
    return operands, {"interleaved": b.integer(0, 1)}, 1


@op("com.microsoft.MRotaryEmbedding", finite=True)
def multi_rotary(b, name):
    x, layout, flat = b.new((2, 3, 4, 16)), b.integer(0, 1), b.chance(0.5)
    sections = b.pick([[3, 3, 2], [8, 0, 0], [4, 2, 2]])
    positions = b.add(b.random.integers(0, 6, size=(3, 2, 4)).astype("int64"))
    x = b.new((2, 4, 48)) if flat else x
    return [x, positions, b.new((6, 8)), b.new((6, 8))], \
        {"mrope_section": sections, "mrope_layout": layout, "interleaved": b.integer(0, 1), **({"num_heads": 3} if flat else {})}, 1


@op("com.microsoft.FastGelu", "com.microsoft.BiasGelu", finite=True)
def biased(b, name):
    x = b.take(FLOATS, least=1)
    bias = b.new((x.shape[-1],)) if name.endswith("BiasGelu") or b.chance(0.5) else None
    return [x, bias], {}, 1


@op("com.microsoft.MatMulNBits")
def matmul_bits(b, name):
    n = b.integer(1, 5)
    x = b.new((b.integer(1, 3), 32))
    codes, scales = b.add(b.random.integers(0, 256, size=(n, 2, 8)).astype("uint8"), True), b.new((n, 2), constant=True)
    zeros = b.add(b.random.integers(0, 256, size=(n, 1)).astype("uint8"), True) if b.chance(0.5) else None
    bias = b.new((n,), constant=True) if b.chance(0.4) else None
    return [x, codes, scales, zeros, None, bias], {"K": 32, "N": n, "bits": 4, "block_size": 16}, 1


@op("com.microsoft.GatherBlockQuantized", exact=True)
def gather_blocks(b, name):
    codes = b.add(b.random.integers(0, 256, size=(5, 16)).astype("uint8"), True)
    return [codes, b.add(b.random.integers(0, 5, size=(2, 3)).astype("int64")), b.new((5, 2), constant=True)], \
        {"bits": 4, "block_size": 16, "gather_axis": 0, "quantize_axis": 1}, 1


@op("com.microsoft.GroupQueryAttention", finite=True)
def grouped(b, name):
    g, r, s, past = b.integer(1, 2), b.integer(1, 2), b.pick([1, 3]), b.integer(1, 3)
    past = past if s == 1 else 0
    cache = [b.new((2, g, past, 8)) for _ in range(2)]
    lengths = b.add(numpy.full((2,), past + s - 1, "int32"))
    total = b.add(numpy.asarray(past + s, "int32"), True)
    q, k, v = b.new((2, s, g * r * 8)), b.new((2, s, g * 8)), b.new((2, s, g * 8))
    return [q, k, v] + cache + [lengths, total], {"num_heads": g * r, "kv_num_heads": g}, 3


@op("com.microsoft.MultiHeadAttention", finite=True)
def multi_head(b, name):
    s, t = b.integer(1, 3), b.integer(1, 4)
    bias = b.new((24,)) if b.chance(0.4) else None
    padding = b.add(numpy.tri(t, dtype="int32")[b.random.integers(0, t, size=2)]) if b.chance(0.3) else None
    summand = b.new((b.pick([1, 2]), b.pick([1, 2]), s, t)) if b.chance(0.3) else None
    return [b.new((2, s, 8)), b.new((2, t, 8)), b.new((2, t, 8)), bias, padding, summand], {"num_heads": 2}, 1