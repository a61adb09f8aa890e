"""Random graphs give in Plait what they give in ONNX Runtime, node by node.

usage: differential_test.py LIBRARY [--graphs N] [--seconds N] [--seed N] [--only INDEX] [--keep FOLDER] [--op NAME]

LIBRARY is libplait.so. Graph INDEX of a seed is the same each time; --keep writes each one that differs as model.onnx and
operands.npz. Next to each graph goes a node with an operand of another type or rank: Plait must refuse what ONNX Runtime refuses
for its types, and must not crash. Runs in the environment of get_onnxruntime.sh; says NOT RUN and ends where there is none.
"""
import argparse
import ctypes
import faulthandler
import importlib.util
import itertools
import os
import sys
import time
from ctypes import POINTER, c_char_p, c_int32, c_int64, c_void_p

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(HERE)))
ENVIRONMENT = os.path.join(ROOT, ".cache", "onnxruntime", "bin", "python")

RELATIVE, OF_LARGEST = 2e-4, 2e-5  # f32, sums in other orders through up to six ops
HALF = 20  # times more for f16
SKIPPED_AFTER = 1e30  # results beyond are overflows of intermediate sums, which engines order differently


class View(ctypes.Structure):
    _fields_ = [("struct_size", c_int64), ("dtype", c_int32), ("rank", c_int32), ("dims", c_int64 * 8), ("elements", c_int64),
                ("bytes", c_int64), ("data", c_void_p)]


class Refused(Exception):
    def __init__(self, message, hint=""):
        super().__init__(message)
        self.hint = hint


def has_onnxruntime():
    """Whether this Python has it. If only the environment does, the script continues there, and this does not return."""
    if importlib.util.find_spec("onnxruntime"):
        return True
    if os.path.exists(ENVIRONMENT) and sys.executable != ENVIRONMENT:
        os.execv(ENVIRONMENT, [ENVIRONMENT, *sys.argv])
    print("NOT RUN: there is no ONNX Runtime; tests/bindings/get_onnxruntime.sh fetches it")
    return False


def packed(texts):
    """Where each text ends, and all texts: strings as plait_tensor_copy takes them."""
    import numpy
    texts = [text.encode() for text in texts.reshape(-1).tolist()]
    return numpy.cumsum([len(text) for text in texts], dtype=numpy.uint64).tobytes() + b"".join(texts)


def unpacked(data, shape):
    import numpy
    out = numpy.empty(shape, object)
    ends = [0] + numpy.frombuffer(data, numpy.uint64, out.size).tolist()
    out.reshape(-1)[:] = [data[8 * out.size + ends[i]:8 * out.size + ends[i + 1]].decode() for i in range(out.size)]
    return out


class Plait:
    """plait.h, as far as a graph needs it."""

    def __init__(self, path):
        self.library = ctypes.CDLL(path)
        self.library.plait_last_error.restype = c_char_p
        self.library.plait_status_name.restype = c_char_p
        self.library.plait_last_hint.restype = c_char_p

    def call(self, name, *arguments):
        status = getattr(self.library, "plait_" + name)(*arguments)
        if status:
            raise Refused(f"{self.library.plait_status_name(status).decode()}: {self.library.plait_last_error().decode()}",
                          self.library.plait_last_hint().decode())

    def tensor(self, array):
        import onnx_file
        dims, out = (c_int64 * 8)(*array.shape), c_void_p()
        data = packed(array) if array.dtype.name == "object" else array.tobytes()
        self.call("tensor_copy", onnx_file.DTYPES[array.dtype.name], dims, c_int64(array.ndim), data, c_int64(len(data)),
                  ctypes.byref(out))
        return out

    def array(self, tensor):
        import numpy
        import onnx_file
        view = View(struct_size=ctypes.sizeof(View))
        self.call("tensor_view", tensor, ctypes.byref(view))
        data = ctypes.string_at(view.data, view.bytes) if view.bytes else b""
        shape = [view.dims[i] for i in range(view.rank)]
        if onnx_file.NUMPY[view.dtype] == "object":
            return unpacked(data, shape)
        return numpy.frombuffer(data, onnx_file.NUMPY[view.dtype]).reshape(shape).copy()

    def run(self, model, operands, outputs):
        """operands: {name: array}; outputs: names."""
        import numpy
        handles = []

        def kept(kind, handle):
            handles.append((kind, handle))
            return handle

        try:
            file = kept("tensor", self.tensor(numpy.frombuffer(model, numpy.uint8)))
            opened, session = c_void_p(), c_void_p()
            self.call("model_open_memory", (c_char_p * 1)(b"model.onnx"), (c_void_p * 1)(file), c_int64(1), None,
                      ctypes.byref(opened))
            kept("model", opened)
            self.call("session_create", opened, self.options, ctypes.byref(session))
            kept("session", session)
            tensors = [kept("tensor", self.tensor(array)) for array in operands.values()]
            names = (c_char_p * len(operands))(*(name.encode() for name in operands))
            wanted = (c_char_p * len(outputs))(*(name.encode() for name in outputs))
            made = (c_void_p * len(outputs))()
            self.call("session_run", session, names, (c_void_p * len(tensors))(*tensors), c_int64(len(tensors)), wanted, made,
                      c_int64(len(outputs)))
            return [self.array(kept("tensor", c_void_p(one))) for one in made]
        finally:
            for kind, handle in reversed(handles):
                self.call(kind + "_release", handle)

    @property
    def options(self):
        if not hasattr(self, "_options"):
            self._options = c_void_p()
            self.call("options_create", ctypes.byref(self._options))
            for key, value in ((b"threads", b"1"), (b"memory_bytes", b"1G")):
                self.call("options_set", self._options, key, value, c_int64(-1))
        return self._options


class Runtime:
    """ONNX Runtime, one node at a time and without its optimizer: what a node means."""

    def __init__(self):
        import onnxruntime
        self.module = onnxruntime
        onnxruntime.set_default_logger_severity(4)
        self.settings = onnxruntime.SessionOptions()
        self.settings.intra_op_num_threads = self.settings.inter_op_num_threads = 1
        self.settings.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL

    def run(self, model, operands, outputs):
        try:
            session = self.module.InferenceSession(model, self.settings, providers=["CPUExecutionProvider"])
            return session.run(outputs, operands)
        except Exception as error:  # its exceptions have no common base
            raise Refused(str(error)) from error


def one_node(op, operands, attributes, outputs):
    """The model of a single node on these arrays (None: absent), and what to feed."""
    import onnx_file
    feeds = {f"x{i}": array for i, array in enumerate(operands) if array is not None}
    names = [f"x{i}" if array is not None else "" for i, array in enumerate(operands)]
    while names and not names[-1]:
        names.pop()
    inputs = [(name, array.dtype.name, array.shape) for name, array in feeds.items()]
    made = [f"y{i}" for i in range(outputs)]
    return onnx_file.model([onnx_file.node(op, names, made, attributes, "n")], inputs, made), feeds, made


def result_is_code(array):
    """Whether it may be of numbers that were quantized."""
    return array.dtype.name in ("int8", "uint8")


def difference(got, expected, exact):
    import numpy
    if got.dtype != expected.dtype:
        return f"dtype {got.dtype}, expected {expected.dtype}"
    if got.shape != expected.shape:
        return f"shape {list(got.shape)}, expected {list(expected.shape)}"
    if not expected.size or (got == expected).all():
        return ""
    if expected.dtype.kind != "f":
        if not exact and result_is_code(expected) and (numpy.abs(got.astype(int) - expected.astype(int)) <= 1).all():
            return ""  # quantized again: a number next to the middle of two steps
        return f"{got.ravel()[:8]}, expected {expected.ravel()[:8]}"
    slack = HALF if expected.dtype == numpy.float16 else 1
    a, b = got.astype("float64"), expected.astype("float64")
    finite = numpy.isfinite(b)
    largest = numpy.abs(b[finite]).max(initial=0)
    if largest > SKIPPED_AFTER:
        return ""
    with numpy.errstate(invalid="ignore"):
        near = numpy.abs(a - b) <= slack * (RELATIVE * numpy.abs(b) + OF_LARGEST * max(largest, 0.1))
    wrong = ~((a == b) | (numpy.isnan(a) & numpy.isnan(b)) | (finite & near))
    if not wrong.any():
        return ""
    at = tuple(int(one[0]) for one in numpy.nonzero(wrong)) if wrong.ndim else ()
    return f"{int(wrong.sum())} of {wrong.size} elements, first {got[at]!r}, expected {expected[at]!r} at {list(at)}"


class Trial:
    """A random graph: made with ONNX Runtime, node by node, then run in Plait at once."""

    def __init__(self, plait, runtime, seed, index, only_op):
        import numpy
        from differential_graphs import Builder
        self.plait, self.runtime, self.only_op = plait, runtime, only_op
        self.builder = Builder(numpy.random.default_rng((seed, index)))
        self.ops, self.expected, self.last = [], {}, None

    def add_node(self):
        import numpy
        import onnx_file
        import exact_codes
        import differential_image  # noqa: F401: these add to OPS
        import differential_layers  # noqa: F401
        import differential_microsoft  # noqa: F401
        import differential_ml  # noqa: F401
        import differential_strings  # noqa: F401
        from differential_graphs import OPS, Value
        b = self.builder
        name = self.only_op or b.pick(sorted(OPS))
        make, exact, finite = OPS[name]
        made = make(b, name)
        if not made:
            return
        operands, attributes, outputs = made
        arrays = [one.array if one else None for one in operands]
        if finite and not all(one.dtype.kind != "f" or numpy.isfinite(one).all() for one in arrays if one is not None):
            return
        try:
            results = exact_codes.results(self.runtime, one_node, name, arrays, attributes, outputs)
        except Refused:
            return
        self.last = (name, arrays, attributes, outputs)
        exact = exact and all(one.exact for one in operands if one)
        values = [Value(f"v{len(b.values) + i}", result, exact) for i, result in enumerate(results)]
        operand_names = [one.name if one else "" for one in operands]
        while operand_names and not operand_names[-1]:
            operand_names.pop()
        b.nodes.append(onnx_file.node(name, operand_names, [one.name for one in values], attributes, f"n{len(b.nodes)}"))
        b.values += values
        self.ops.append(name)
        for i, value in enumerate(values):
            self.expected[value.name] = value
            value.of = name
            if not value.exact and result_is_code(value.array):
                value.dtype = f"inexact {value.dtype}"  # which no other op takes

    def model(self):
        import onnx_file
        b = self.builder
        self.outputs = [name for i, name in enumerate(self.expected) if i + 1 == len(self.expected) or b.chance(0.6)]
        self.feeds = {name: next(one.array for one in b.values if one.name == name) for name, _, _ in b.inputs}
        return onnx_file.model(b.nodes, b.inputs, self.outputs, b.initializers)

    def fault(self):
        """"" if Plait gives what ONNX Runtime gave."""
        for _ in range(self.builder.integer(1, 6)):
            self.add_node()
        if not self.expected:
            return ""
        self.file = self.model()
        try:
            results = self.plait.run(self.file, self.feeds, self.outputs)
        except Refused as error:
            return f"refused: {error}"
        for name, got in zip(self.outputs, results):
            wanted = self.expected[name]
            apart = difference(got, wanted.array, wanted.exact)
            if apart:
                return f"{name} of {wanted.of}: {apart}"
        return ""

    def misuse(self):
        """A node with an operand of another type or rank: "" if Plait refuses what ONNX Runtime refuses for its types."""
        import numpy
        if not self.last:
            return ""
        b, (name, arrays, attributes, outputs) = self.builder, self.last
        arrays = list(arrays)
        places = [i for i, one in enumerate(arrays) if one is not None]
        at = b.pick(places)
        if b.chance(0.6):
            others = [one for one in ("float32", "float64", "int8", "int64", "uint8", "bool") if one != arrays[at].dtype.name]
            with numpy.errstate(invalid="ignore"):
                strings = arrays[at].dtype.name == "object"
                arrays[at] = (numpy.zeros(arrays[at].shape) if strings else arrays[at]).astype(b.pick(others))
        else:
            shape = list(arrays[at].shape)
            arrays[at] = arrays[at].reshape([1] + shape) if b.chance(0.5) or not shape else arrays[at].reshape(-1)[:1].reshape(
                [1] * b.integer(0, 1) if arrays[at].size else shape)
        model, feeds, names = one_node(name, arrays, attributes, outputs)
        try:
            self.plait.run(model, feeds, names)
        except Refused as error:
            return f"{name}: {error}" if str(error).startswith("INTERNAL") else ""
        # Ops that are read as others take each operand's own type where the others do; on some operands ONNX Runtime aborts.
        import differential_microsoft
        if name in differential_microsoft.OPS:
            return ""
        try:
            self.runtime.run(model, feeds, names)
        except Refused as error:
            # The standard has two types for the operands of these, which ONNX Runtime does not let differ, or they are read as f32.
            may = ("RMSNormalization", "Attention", "ai.onnx.ml.FeatureVectorizer")
            if "bound to different types" in str(error) and name not in may:
                return f"{name} takes {[one.dtype.name if one is not None else '' for one in arrays]}, which have to be one type"
        return ""

    def keep(self, folder):
        import numpy
        os.makedirs(folder, exist_ok=True)
        with open(os.path.join(folder, "model.onnx"), "wb") as file:
            file.write(self.file)
        numpy.savez(os.path.join(folder, "operands.npz"), **self.feeds)


def main():
    if not has_onnxruntime():
        return 0
    import onnxruntime
    sys.path.insert(0, HERE)
    words = argparse.ArgumentParser()
    words.add_argument("library")
    words.add_argument("--graphs", type=int, default=400)
    words.add_argument("--seconds", type=float, help="so long, whatever the number of graphs")
    words.add_argument("--seed", type=int, default=1)
    words.add_argument("--only", type=int)
    words.add_argument("--op")
    words.add_argument("--keep")
    words = words.parse_args()
    faulthandler.enable()
    print("ONNX Runtime", onnxruntime.__version__)
    plait, runtime = Plait(words.library), Runtime()
    wrong = ran = nodes = 0
    used, begin, clock = set(), time.process_time(), time.monotonic()
    numbers = [words.only] if words.only is not None else itertools.count() if words.seconds else range(words.graphs)
    for index in numbers:
        if words.seconds and time.monotonic() - clock > words.seconds:
            break
        trial = Trial(plait, runtime, words.seed, index, words.op)
        faults = [trial.fault(), trial.misuse()]
        ran += bool(trial.expected)
        nodes += len(trial.ops)
        used |= set(trial.ops)
        for fault in filter(None, faults):
            wrong += 1
            print(f"seed {words.seed} graph {index} ({' '.join(trial.ops)}): {fault}", flush=True)
            if words.keep:
                trial.keep(os.path.join(words.keep, f"{words.seed}-{index}"))
    print(f"{ran} graphs of {nodes} nodes of {len(used)} ops, {wrong} wrong, {time.process_time() - begin:.0f} s")
    return 1 if wrong or not ran else 0


if __name__ == "__main__":
    sys.exit(main())
