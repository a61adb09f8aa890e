"""Random graphs of one to six ops for differential_test.py: ONNX's own ops and com.microsoft's, on small operands.

Operands are values that the graph has already, or new ones: inputs, with sizes as numbers, as names or open, or initializers. A
value is `exact` if every engine must compute the same bits of it; ops whose results jump (Floor, TopK, Log near 0) take such values
only.
"""
import numpy

FLOATS, HALVES, INTEGERS = ["float32"], ["float32", "float32", "float16"], ["int64", "int64", "int32"]


class Value:
    def __init__(self, name, array, exact):
        self.name, self.array, self.exact = name, array, exact
        self.dtype, self.shape, self.rank = array.dtype.name, array.shape, array.ndim


class Builder:
    """One graph under way: its values, and what a node may read."""

    def __init__(self, random):
        self.random = random
        self.values, self.inputs, self.initializers, self.nodes = [], [], [], []
        self.special = random.random() < 0.15  # whether floats hold infinities and NaN

    def pick(self, options):
        return options[int(self.random.integers(len(options)))]

    def chance(self, share):
        return self.random.random() < share

    def integer(self, low, high):
        return int(self.random.integers(low, high + 1))

    def sizes(self, rank=None):
        rank = self.pick([0, 1, 1, 2, 2, 3, 3, 4]) if rank is None else rank
        return tuple(self.pick([1, 2, 3, 4, 5]) if not self.chance(0.03) else 0 for _ in range(rank))

    def numbers(self, shape, dtype):
        if dtype == "bool":
            return self.random.random(shape) < 0.5
        if dtype.startswith("float"):
            out = self.random.normal(size=shape) * self.pick([0.1, 1, 1, 4])
            if self.special and out.size:
                out = numpy.asarray(out)
                out.reshape(-1)[self.integer(0, out.size - 1)] = self.pick([numpy.nan, numpy.inf, -numpy.inf])
            return numpy.asarray(out).astype(dtype)
        low = 0 if dtype.startswith("u") else -5
        return self.random.integers(low, 7, size=shape).astype(dtype)

    def add(self, array, constant=None):
        array = numpy.asarray(array)
        value = Value(f"v{len(self.values)}", array, True)
        self.values.append(value)
        if self.chance(0.4) if constant is None else constant:
            self.initializers.append((value.name, array))
            return value
        form = self.pick(["numbers", "numbers", "names", "open"])
        dims = None if form == "open" else [
            size if form == "numbers" else f"{value.name}_{axis}" for axis, size in enumerate(array.shape)]
        self.inputs.append((value.name, array.dtype.name, dims))
        return value

    def new(self, shape=None, dtypes=FLOATS, constant=None):
        shape = self.sizes() if shape is None else shape
        return self.add(self.numbers(shape, self.pick(dtypes)), constant)

    def old(self, accepts, share=0.7):
        """A value that the graph has and that is accepted, or None."""
        found = [one for one in self.values if accepts(one)]
        return self.pick(found) if found and self.chance(share) else None

    def take(self, dtypes=FLOATS, rank=None, exact=False, least=0):
        def accepts(one):
            return one.dtype in dtypes and (one.exact or not exact) and one.rank >= least and rank in (None, one.rank)
        rank_of_new = rank if rank is not None else max(least, self.pick([0, 1, 2, 2, 3, 3, 4]))
        return self.old(accepts) or self.new(self.sizes(rank_of_new), dtypes)

    def like(self, value, shape=None):
        """An operand of the value's type, of this shape."""
        shape = value.shape if shape is None else tuple(shape)
        return self.old(lambda one: one.dtype == value.dtype and one.shape == shape and one is not value, 0.5) or \
            self.new(shape, [value.dtype])

    def broadcast(self, value):
        """A shape that broadcasts with the value's."""
        shape = [1 if self.chance(0.3) else size for size in value.shape]
        return shape[self.integer(0, len(shape)):] if self.chance(0.4) else shape

    def indices(self, shape, size):
        return self.add(self.random.integers(-size, size, size=shape).astype(self.pick(["int64", "int32"])))

    def ints(self, numbers, dtype="int64"):
        return self.add(numpy.asarray(numbers, dtype), constant=None if self.chance(0.3) else True)

    def axis(self, value):
        return self.integer(-value.rank, value.rank - 1)


OPS = {}


def op(*names, exact=False, finite=False):
    """exact: the result is as exact as the operands. finite: engines differ in what infinities and NaN give, as where 0 times
    infinity is left out."""
    def register(make):
        for name in names:
            OPS[name] = (make, exact, finite)
        return make
    return register


# Each returns (operands, attributes, outputs) for a node of op `name`; an operand None is absent.

@op("Add", "Sub", "Mul", exact=True)
def arithmetic(b, name):
    x = b.take(HALVES + INTEGERS + ["float64"])
    operands = [x, b.like(x, b.broadcast(x))]
    return operands if b.chance(0.5) else operands[::-1], {}, 1


@op("Div")
def divide(b, name):
    x = b.take(FLOATS + INTEGERS)
    y = numpy.asarray(b.numbers(tuple(b.broadcast(x)), x.dtype))
    return [x, b.add(numpy.where(y == 0, numpy.ones_like(y), y).astype(x.dtype))], {}, 1


@op("Pow")
def power(b, name):
    x = b.take(FLOATS)
    return [x, b.add(numpy.asarray(b.pick([0.5, 1, 2, 3]), b.pick(["float32", "int64"])))], {}, 1


@op("Mod", exact=True)
def modulo(b, name):
    x = b.take(INTEGERS)
    return [x, b.ints(numpy.full((), b.pick([-3, 2, 5])), x.dtype)], {}, 1


@op("Max", "Min", "Sum", "Mean", exact=False)
def variadic(b, name):
    x = b.take(FLOATS)
    return [x] + [b.like(x, b.broadcast(x)) for _ in range(b.integer(0, 2))], {}, 1


@op("PRelu")
def prelu(b, name):
    x = b.take(FLOATS)
    return [x, b.like(x, [1 if b.chance(0.3) else size for size in x.shape])], {}, 1


@op("Equal", "Less", "LessOrEqual", "Greater", "GreaterOrEqual", exact=True)
def compare(b, name):
    x = b.take(FLOATS + INTEGERS, exact=True)
    return [x, b.like(x, b.broadcast(x))], {}, 1


@op("And", "Or", "Xor", exact=True)
def logic(b, name):
    x = b.take(["bool"])
    return [x, b.like(x, b.broadcast(x))], {}, 1


@op("BitwiseAnd", "BitwiseOr", "BitwiseXor", exact=True)
def bits(b, name):
    x = b.take(INTEGERS)
    return [x, b.like(x, b.broadcast(x))], {}, 1


@op("BitShift", exact=True)
def shift(b, name):
    x = b.take(["uint8", "uint32", "uint64"])
    return [x, b.add(b.random.integers(0, 7, size=x.shape).astype(x.dtype))], {"direction": b.pick(["LEFT", "RIGHT"])}, 1


@op("Abs", "Neg", "Relu", exact=True)
def signed(b, name):
    return [b.take(HALVES + INTEGERS)], {}, 1


@op("Sign", "Floor", "Ceil", "Round", exact=True)
def steps(b, name):
    return [b.take(FLOATS, exact=True)], {}, 1


@op("IsNaN", "IsInf", exact=True)
def tests(b, name):
    return [b.take(FLOATS, exact=True)], {}, 1


@op("Exp", "Erf", "Sin", "Cos", "Tanh", "Sigmoid", "Softplus", "Softsign", "LeakyRelu", "Elu", "Celu", "Selu", "HardSigmoid",
    "Atan")
def function(b, name):
    return [b.take(FLOATS)], {}, 1


@op("Gelu", "Mish", "HardSwish", "com.microsoft.Gelu", "com.microsoft.QuickGelu", finite=True)
def gelu(b, name):
    return [b.take(FLOATS)], {"approximate": "tanh"} if name == "Gelu" and b.chance(0.5) else {}, 1


@op("ThresholdedRelu", "Shrink", "Log", "Sqrt", "Reciprocal")
def steep(b, name):
    return [b.take(FLOATS, exact=True)], {}, 1


@op("Not", exact=True)
def negation(b, name):
    return [b.take(["bool"])], {}, 1


@op("Identity", exact=True)
def identity(b, name):
    return [b.take(HALVES + INTEGERS + ["bool"])], {}, 1


@op("Clip", exact=True)
def clip(b, name):
    x = b.take(FLOATS + INTEGERS)
    low, high = (b.add(numpy.asarray(one, x.dtype)) if b.chance(0.7) else None for one in (-1, 2))
    return [x, low, high], {}, 1


@op("Cast", exact=True)
def cast(b, name):
    x = b.take(FLOATS + INTEGERS + ["bool"], exact=True)
    to = b.pick([1, 6, 7, 9, 11] if x.dtype.startswith("float") and not b.special else [1, 11])
    return [x], {"to": to if x.dtype.startswith("float") else b.pick([1, 2, 3, 6, 7, 9, 10, 11])}, 1


@op("Transpose", exact=True)
def transpose(b, name):
    x = b.take(HALVES + INTEGERS)
    return [x], {"perm": [int(one) for one in b.random.permutation(x.rank)]} if x.rank and b.chance(0.8) else {}, 1


@op("Reshape", exact=True)
def reshape(b, name):
    x = b.take(FLOATS + INTEGERS)
    count, sizes = x.array.size, []
    for _ in range(b.integer(0, 3)):
        sizes.append(b.pick([one for one in range(1, max(count, 1) + 1) if count % one == 0] if count else [1]))
        count //= sizes[-1]
    sizes.append(b.pick([-1, count]) if x.array.size else count)
    return [x, b.ints(sizes)], {}, 1


@op("Flatten", exact=True)
def flatten(b, name):
    x = b.take(FLOATS)
    return [x], {"axis": b.integer(-x.rank, x.rank)}, 1


@op("Squeeze", exact=True)
def squeeze(b, name):
    x = b.take(FLOATS + INTEGERS)
    axes = [axis for axis, size in enumerate(x.shape) if size == 1]
    return [x, b.ints(axes) if axes and b.chance(0.5) else None], {}, 1


@op("Unsqueeze", exact=True)
def unsqueeze(b, name):
    x = b.take(FLOATS + INTEGERS)
    return [x, b.ints([b.integer(-x.rank - 1, x.rank)])], {}, 1


@op("Expand", exact=True)
def expand(b, name):
    x = b.take(FLOATS + INTEGERS)
    sizes = [b.integer(1, 3) if size == 1 else b.pick([1, size]) for size in x.shape]
    return [x, b.ints([b.integer(1, 3)] * b.integer(0, 1) + sizes)], {}, 1


@op("Tile", exact=True)
def tile(b, name):
    x = b.take(FLOATS + INTEGERS)
    return [x, b.ints([b.integer(0, 2) if b.chance(0.2) else b.integer(1, 2) for _ in x.shape])], {}, 1


@op("Pad", exact=True)
def pad(b, name):
    x = b.take(FLOATS + INTEGERS, least=1)
    mode = b.pick(["constant", "constant", "edge", "reflect"]) if min(x.shape) > 2 else "constant"
    pads = [b.integer(0, 2) for _ in range(2 * x.rank)]
    value = b.add(numpy.asarray(3, x.dtype)) if b.chance(0.5) else None
    return [x, b.ints(pads), value if mode == "constant" else None], {"mode": mode}, 1


@op("Concat", exact=True)
def concat(b, name):
    x = b.take(HALVES + INTEGERS, least=1)
    axis = b.axis(x)
    others = []
    for _ in range(b.integer(0, 2)):
        shape = list(x.shape)
        shape[axis] = b.integer(0, 3)
        others.append(b.like(x, shape))
    return [x] + others, {"axis": axis}, 1


@op("Split", exact=True)
def split(b, name):
    x = b.take(FLOATS + INTEGERS, least=1)
    axis = b.axis(x)
    size = x.shape[axis]
    if b.chance(0.5) and size > 1:
        return [x], {"axis": axis, "num_outputs": 2}, 2
    first = b.integer(0, size)
    return [x, b.ints([first, size - first])], {"axis": axis}, 2


@op("Slice", exact=True)
def slice_(b, name):
    x = b.take(FLOATS + INTEGERS, least=1)
    axes = sorted({b.integer(0, x.rank - 1) for _ in range(b.integer(1, 2))})
    starts, ends, steps = [], [], []
    for axis in axes:
        step = b.pick([1, 1, 1, 2, -1])
        begin, end = sorted(b.integer(-x.shape[axis], x.shape[axis]) for _ in range(2))
        starts.append(end if step < 0 else begin)
        ends.append(begin if step < 0 else b.pick([end, 2 ** 31 - 1]))
        steps.append(step)
    return [x, b.ints(starts), b.ints(ends), b.ints(axes), b.ints(steps) if b.chance(0.7) or -1 in steps else None], {}, 1


@op("Gather", exact=True)
def gather(b, name):
    x = b.take(HALVES + INTEGERS, least=1)
    axis = b.axis(x)
    return [x, b.indices(b.sizes(b.integer(0, 2)) if x.shape[axis] else (0,), max(x.shape[axis], 1))], {"axis": axis}, 1


@op("GatherElements", exact=True)
def gather_elements(b, name):
    x = b.take(FLOATS + INTEGERS, least=1)
    axis = b.axis(x)
    shape = list(x.shape)
    shape[axis] = b.integer(0, 4) if x.shape[axis] else 0
    return [x, b.indices(shape, max(x.shape[axis], 1))], {"axis": axis}, 1


@op("ScatterElements", exact=True, finite=True)
def scatter_elements(b, name):
    x = b.take(FLOATS + INTEGERS, least=1)
    axis = b.axis(x)
    count = b.integer(0, x.shape[axis])
    lines = numpy.argsort(b.random.random(x.shape), axis=axis)
    at = numpy.take(lines, range(count), axis=axis).astype("int64")
    return [x, b.add(at), b.like(x, at.shape)], {"axis": axis, "reduction": b.pick(["none", "add", "max"])}, 1


@op("ScatterND", exact=True)
def scatter_nd(b, name):
    x = b.take(FLOATS + INTEGERS, least=1)
    if not x.shape[0]:
        return None
    count = b.integer(1, x.shape[0])
    rows = b.random.permutation(x.shape[0])[:count].reshape(count, 1).astype("int64")
    return [x, b.add(rows), b.like(x, (count,) + x.shape[1:])], {}, 1


@op("GatherND", exact=True)
def gather_nd(b, name):
    x = b.take(FLOATS + INTEGERS, least=1)
    depth = b.integer(1, x.rank)
    if 0 in x.shape:
        return None
    at = numpy.stack([b.random.integers(-size, size, size=(3,)) for size in x.shape[:depth]], -1)
    return [x, b.add(at.astype("int64"))], {}, 1


@op("Where", exact=True)
def where(b, name):
    x = b.take(FLOATS + INTEGERS)
    condition = b.old(lambda one: one.dtype == "bool" and one.shape == x.shape) or b.new(tuple(b.broadcast(x)), ["bool"])
    return [condition, x, b.like(x, b.broadcast(x))], {}, 1


@op("Trilu", exact=True)
def trilu(b, name):
    x = b.take(FLOATS + ["int64"], least=2)
    return [x, b.ints(numpy.asarray(b.integer(-2, 2))) if b.chance(0.5) else None], {"upper": b.integer(0, 1)}, 1


@op("DepthToSpace", exact=True)
def depth_to_space(b, name):
    return [b.new((b.integer(1, 2), 8, 2, 3))], {"blocksize": 2, "mode": b.pick(["DCR", "CRD"])}, 1


@op("SpaceToDepth", exact=True)
def space_to_depth(b, name):
    return [b.new((b.integer(1, 2), 3, 4, 2))], {"blocksize": 2}, 1


@op("Shape", exact=True)
def shape(b, name):
    x = b.take(FLOATS + INTEGERS)
    return [x], {"start": b.integer(-x.rank, x.rank)} if b.chance(0.3) else {}, 1


@op("Size", exact=True)
def size(b, name):
    return [b.take(FLOATS)], {}, 1


@op("Range", exact=True)
def range_(b, name):
    return [b.ints(numpy.asarray(one)) for one in (b.integer(0, 2), b.integer(3, 7), b.integer(1, 2))], {}, 1


@op("ConstantOfShape", exact=True)
def constant_of_shape(b, name):
    sizes = b.old(lambda one: one.dtype == "int64" and one.rank == 1 and one.array.size < 5 and
                  (one.array >= 0).all() and numpy.prod(one.array) < 2000)
    return [sizes or b.ints(b.sizes(b.integer(0, 3)))], {"value": numpy.asarray([b.integer(0, 3)], b.pick(["float32", "int64"]))}, 1


@op("OneHot", exact=True)
def one_hot(b, name):
    return [b.indices(b.sizes(b.integer(0, 2)), 4), b.ints(numpy.asarray(4)), b.new((2,), FLOATS + INTEGERS)], {"axis": -1}, 1


@op("NonZero", "Unique", exact=True, finite=True)
def found(b, name):
    x = b.take(FLOATS + ["int64"], exact=True, least=1)  # of a scalar ONNX Runtime makes [1, n], the standard [0, n]
    return ([x], {}, 1) if name == "NonZero" else ([x], {"sorted": b.integer(0, 1)}, b.pick([1, 4]))


@op("Compress", exact=True)
def compress(b, name):
    x = b.take(FLOATS, least=1)
    axis = b.axis(x)
    return [x, b.new((x.shape[axis],), ["bool"])], {"axis": axis}, 1


@op("CumSum")
def cumulative(b, name):
    x = b.take(FLOATS + INTEGERS, least=1)
    return [x, b.ints(numpy.asarray(b.axis(x)))], {"exclusive": b.integer(0, 1), "reverse": b.integer(0, 1)}, 1


@op("TopK", exact=True)
def top_k(b, name):
    x = b.add(b.random.permutation(24).reshape(4, 6).astype(b.pick(["float32", "int64"])))
    return [x, b.ints([b.integer(0, 4)])], {"axis": b.integer(-2, 1), "largest": b.integer(0, 1)}, 2


@op("ArgMax", "ArgMin", exact=True)
def arg(b, name):
    x = b.take(FLOATS + ["int32"], exact=True, least=1)
    if b.special or 0 in x.shape:
        return None
    return [x], {"axis": b.axis(x), "keepdims": b.integer(0, 1), "select_last_index": b.integer(0, 1)}, 1


@op("ReverseSequence", exact=True)
def reverse_sequence(b, name):
    x = b.new((b.integer(1, 4), b.integer(1, 3), 2))
    return [x, b.add(b.random.integers(1, x.shape[0] + 1, size=x.shape[1]).astype("int64"))], {}, 1


@op("EyeLike", exact=True)
def eye(b, name):
    return [b.take(FLOATS, rank=2)], {"k": b.integer(-1, 1)}, 1


@op("ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceL1", "ReduceL2", "ReduceLogSumExp", "ReduceSumSquare",
    "ReduceLogSum", finite=True)
def reduce(b, name):
    integers = ["int32", "int64"] if name in ("ReduceSum", "ReduceMax", "ReduceMin") else []
    x = b.take(FLOATS + integers, exact=name == "ReduceLogSum")
    if 0 in x.shape:
        return None
    axes = sorted({b.integer(0, x.rank - 1) for _ in range(b.integer(1, 2))}) if x.rank and b.chance(0.8) else None
    return [x, b.ints(axes) if axes else None], {"keepdims": b.integer(0, 1)}, 1


@op("Softmax", "LogSoftmax", "LpNormalization")
def softmax(b, name):
    x = b.take(FLOATS, least=1)
    return [x], {"axis": b.axis(x)}, 1


@op("Hardmax")
def hardmax(b, name):
    x = b.take(FLOATS, least=1, exact=True)
    return None if b.special else ([x], {"axis": b.axis(x)}, 1)
