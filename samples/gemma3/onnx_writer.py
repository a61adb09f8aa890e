"""Writes an ONNX graph node by node, and its weights one by one into an external data file.

Nothing is held in memory but the graph itself: a weight is handed over in blocks and goes straight to the file.
"""

from contextlib import contextmanager
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

# Tensors start on page boundaries, so that a reader can map them one by one.
ALIGNMENT = 4096
ONNX_TYPE = {"f32": TensorProto.FLOAT, "bf16": TensorProto.BFLOAT16, "f16": TensorProto.FLOAT16,
             "u8": TensorProto.UINT8}
ELEMENT_BYTES = {"f32": 4, "bf16": 2, "f16": 2, "u8": 1}
MICROSOFT = "com.microsoft"
IR_VERSION = {18: 8, 23: 11}


def narrow(array, dtype):
    """An f32 array in the bits of `dtype`; bf16 rounds to nearest even and comes as uint16. u8 is taken as it is."""
    if dtype == "u8":
        return np.ascontiguousarray(array, np.uint8)
    array = np.ascontiguousarray(array, np.float32)
    if dtype == "f32":
        return array
    if dtype == "f16":
        return array.astype(np.float16)
    bits = array.view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


def widen(bits):
    """The f32 numbers of bf16 bits."""
    return (bits.astype(np.uint32) << 16).view(np.float32)


class GraphWriter:
    """Collects nodes and initializers; `op` returns the name of the value that a node makes."""

    def __init__(self, path, opset, name="decoder"):
        self.path = Path(path)
        self.opset = opset
        self.name = name
        self.nodes, self.initializers, self.inputs, self.outputs = [], [], [], []
        self.written = 0
        self._scope = ["model"]
        self._names = {}
        self._constants = {}
        self._data_name = self.path.name + ".data"
        self._data = open(self.path.with_name(self._data_name), "wb")

    @contextmanager
    def scope(self, name):
        """Nodes made inside are named /model/.../name/..."""
        self._scope.append(name)
        try:
            yield
        finally:
            self._scope.pop()

    def op(self, op_type, *inputs, outputs=None, **attributes):
        """Adds a node. Returns its value's name, or a tuple of them when `outputs` lists names (None: made up)."""
        name = self._unique("/".join(["", *self._scope, op_type]))
        wanted = [None] if outputs is None else outputs
        made = tuple(out or f"{name}_output_{i}" for i, out in enumerate(wanted))
        self.nodes.append(helper.make_node(op_type, [i or "" for i in inputs], list(made), name, **attributes))
        return made[0] if outputs is None else made

    def constant(self, value, dtype=np.int64):
        """A small tensor kept in the graph itself; equal ones are one."""
        array = np.asarray(value, dtype)
        key = (array.dtype.str, array.shape, array.tobytes())
        if key not in self._constants:
            name = f"constant_{len(self._constants)}"
            self.initializers.append(numpy_helper.from_array(array, name))
            self._constants[key] = name
        return self._constants[key]

    def weight(self, name, shape, blocks, dtype="f32"):
        """A weight in the external file. `blocks` are f32 arrays that follow each other along the first dimension.

        None leaves a hole in the file, which reads as zeros and takes no room on the disk.
        """
        self._data.write(b"\0" * (-self._data.tell() % ALIGNMENT))
        offset = self._data.tell()
        expected = int(np.prod(shape, dtype=np.int64)) * ELEMENT_BYTES[dtype]
        if blocks is None:
            self._data.truncate(self._data.seek(expected, 1))
        for block in blocks or ():
            self._data.write(memoryview(narrow(block, dtype)).cast("B"))
        length = self._data.tell() - offset
        if length != expected:
            raise ValueError(f"{name}: {length} bytes were written, {list(shape)} in {dtype} needs {expected}")
        tensor = TensorProto(name=name, data_type=ONNX_TYPE[dtype], dims=shape,
                             data_location=TensorProto.EXTERNAL)
        for key, value in (("location", self._data_name), ("offset", offset), ("length", length)):
            tensor.external_data.add(key=key, value=str(value))
        self.initializers.append(tensor)
        self.written += length
        return name

    def alias(self, name, weight, shape):
        """The bytes of another weight under a name and a shape of its own."""
        tensor = TensorProto()
        tensor.CopyFrom(next(one for one in self.initializers if one.name == weight))
        if int(np.prod(shape)) != int(np.prod(tensor.dims)):
            raise ValueError(f"{name}: {list(shape)} is no other shape of {weight} {list(tensor.dims)}")
        tensor.name = name
        tensor.dims[:] = shape
        self.initializers.append(tensor)
        return name

    def input(self, name, kind, shape):
        self.inputs.append(helper.make_tensor_value_info(name, kind, shape))
        return name

    def output(self, name, kind, shape):
        self.outputs.append(helper.make_tensor_value_info(name, kind, shape))

    def save(self):
        """Writes the .onnx file and closes the data file."""
        self._data.close()
        graph = helper.make_graph(self.nodes, self.name, self.inputs, self.outputs, self.initializers)
        opsets = [helper.make_opsetid("", self.opset)]
        if any(node.domain == MICROSOFT for node in self.nodes):
            opsets.append(helper.make_opsetid(MICROSOFT, 1))
        model = helper.make_model(graph, opset_imports=opsets,
                                  ir_version=IR_VERSION[self.opset], producer_name="plait-samples")
        onnx.save(model, self.path)

    def _unique(self, name):
        count = self._names.get(name, 0)
        self._names[name] = count + 1
        return f"{name}_{count}" if count else name
