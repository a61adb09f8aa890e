"""Convolution, pooling, resizing, sampling, recurrent layers and spectra, for differential_graphs.py."""
import numpy

from differential_graphs import FLOATS, op


def image(b, types=FLOATS, channels=4, space=None):
    """A batch of images of one to three dims of space, some of them small."""
    space = b.integer(1, 3) if space is None else space
    return b.new((b.integer(1, 2), channels, *(b.integer(4, 7) for _ in range(space))), types)


def sliding(b, space, most_kernel=3, symmetric=False):
    """Attributes of a window, and the sizes of its kernel."""
    kernel = [b.integer(1, most_kernel) for _ in range(space)]
    out = {"kernel_shape": kernel, "strides": [b.integer(1, 2) for _ in range(space)]}
    if b.chance(0.5):  # padding is less than the kernel
        out["pads"] = [b.integer(0, max(0, (size - 1) // 2)) for size in kernel] * 2 if symmetric else \
            [b.integer(0, size - 1) for size in kernel + kernel]
    elif b.chance(0.4):
        out["auto_pad"] = b.pick(["SAME_UPPER", "SAME_LOWER", "VALID"])
    return out, kernel


@op("Conv", "ConvTranspose", finite=True)
def conv(b, name):
    x = image(b)
    space, group = x.rank - 2, b.pick([1, 2, 4])
    attributes, kernel = sliding(b, space)
    if "auto_pad" not in attributes and b.chance(0.4):
        attributes["dilations"] = [b.integer(1, 2) if size <= 2 else 1 for size in kernel]
    made = b.integer(1, 2)
    if name == "Conv":
        w = b.new((made * group, 4 // group, *kernel))
        return [x, w, b.new((made * group,)) if b.chance(0.5) else None], {"group": group, **attributes}, 1
    if attributes.get("auto_pad") == "VALID" or "auto_pad" in attributes:
        attributes.pop("auto_pad")
    if b.chance(0.3):
        attributes["output_padding"] = [b.integer(0, stride - 1) for stride in attributes["strides"]]
    w = b.new((4, made, *kernel))
    return [x, w, b.new((made * group,)) if b.chance(0.5) else None], {"group": group, **attributes}, 1


@op("ConvInteger", exact=True)
def conv_integer(b, name):
    x, w = image(b, ["uint8"], space=2), None
    attributes, kernel = sliding(b, 2)
    w = b.new((3, 4, *kernel), ["uint8"])
    zeros = [b.add(numpy.asarray(2, "uint8")) if b.chance(0.5) else None for _ in range(2)]
    return [x, w] + zeros, attributes, 1


@op("QLinearConv", exact=True)
def qlinear_conv(b, name):
    x = image(b, ["uint8"], space=2)
    attributes, kernel = sliding(b, 2)
    w = b.add(b.random.integers(0, 9, size=(3, 4, *kernel)).astype("uint8"), True)
    number = lambda value, dtype: b.add(numpy.asarray(value, dtype), True)  # noqa: E731
    bias = [b.add(b.random.integers(-50, 50, size=3).astype("int32"), True)] if b.chance(0.5) else []
    return [x, number(0.5, "float32"), number(3, "uint8"), w, number(0.25, "float32"), number(2, "uint8"),
            number(4.0, "float32"), number(5, "uint8")] + bias, attributes, 1


@op("MaxPool", "AveragePool", "LpPool", finite=True)
def pool(b, name):
    x = image(b)
    attributes, kernel = sliding(b, x.rank - 2)
    if name == "LpPool" and "pads" in attributes:
        attributes.pop("pads")
    if name != "LpPool" and "auto_pad" not in attributes and b.chance(0.3):
        attributes["ceil_mode"] = 1
    if name == "AveragePool":
        attributes["count_include_pad"] = b.integer(0, 1)
    return [x], attributes, 2 if name == "MaxPool" and b.chance(0.4) and "ceil_mode" not in attributes else 1


@op("GlobalAveragePool", "GlobalMaxPool", finite=True)
def global_pool(b, name):
    return [image(b)], {}, 1


@op("LRN", finite=True)
def lrn(b, name):
    return [image(b, space=2)], {"size": b.pick([1, 3, 5]), "alpha": 0.1, "beta": 0.5, "bias": 2.0}, 1


@op("Resize", finite=True)
def resize(b, name):
    x = image(b, channels=2, space=2)
    mode = b.pick(["nearest", "linear", "cubic"])
    where = b.pick(["half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric"])
    attributes = {"mode": mode, "coordinate_transformation_mode": where}
    if mode == "nearest":  # halves are rounded apart by the last bit
        attributes["coordinate_transformation_mode"] = "asymmetric"
        attributes["nearest_mode"] = "floor"
    sizes = b.add(numpy.array([*x.shape[:2], b.integer(2, 9), b.integer(2, 9)], "int64"), True)
    if b.chance(0.5):
        return [x, None, None, sizes], attributes, 1
    # The standard's own cases of align_corners divide by a size before it is rounded down, ONNX Runtime after.
    down = [0.5] if where != "align_corners" else []
    return [x, None, b.add(numpy.array([1, 1, b.pick([1, 2, 3]), b.pick([1, 2] + down)], "float32"), True)], attributes, 1


@op("GridSample", finite=True)
def grid_sample(b, name):
    x = image(b, channels=2, space=2)
    grid = b.add((b.random.random((x.shape[0], 3, 4, 2)) * 2.4 - 1.2).astype("float32"))
    return [x, grid], {"align_corners": b.integer(0, 1), "mode": b.pick(["linear", "cubic"]),
                       "padding_mode": b.pick(["zeros", "border", "reflection"])}, 1


@op("LSTM", "GRU", "RNN", finite=True)
def recurrent(b, name):
    steps, batch, inputs, hidden = b.integer(1, 4), b.integer(1, 3), b.integer(1, 3), b.integer(1, 4)
    direction = b.pick(["forward", "reverse", "bidirectional"])
    d, gates = 2 if direction == "bidirectional" else 1, {"LSTM": 4, "GRU": 3, "RNN": 1}[name]
    x, w, r = b.new((steps, batch, inputs)), b.new((d, gates * hidden, inputs)), b.new((d, gates * hidden, hidden))
    bias = b.new((d, 2 * gates * hidden)) if b.chance(0.5) else None
    lengths = b.add(b.random.integers(1, steps + 1, size=batch).astype("int32")) if b.chance(0.3) else None
    states = [b.new((d, batch, hidden)) if b.chance(0.5) else None for _ in range(2 if name == "LSTM" else 1)]
    attributes = {"hidden_size": hidden, "direction": direction}
    if name == "GRU":
        attributes["linear_before_reset"] = b.integer(0, 1)
    return [x, w, r, bias, lengths] + states, attributes, 3 if name == "LSTM" else 2


@op("DFT", finite=True)
def dft(b, name):
    x = b.new((b.integer(1, 2), b.pick([4, 6, 7, 8]), b.integer(1, 2)))
    axis = b.add(numpy.asarray(1, "int64"), True)
    return [x, None, axis], {"onesided": b.integer(0, 1) if x.shape[-1] == 1 else 0}, 1


@op("Det", finite=True)
def det(b, name):
    n = b.integer(1, 4)
    return [b.new((2, n, n))], {}, 1
