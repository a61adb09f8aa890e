"""Writes ONNX files (onnx.proto) without the onnx package, and lists their ops: what the tests of this folder need of them."""
import struct

import numpy

DTYPES = {"float32": 1, "uint8": 2, "int8": 3, "uint16": 4, "int16": 5, "int32": 6, "int64": 7, "object": 8, "bool": 9, "float16": 10,
          "float64": 11, "uint32": 12, "uint64": 13}
NUMPY = {number: name for name, number in DTYPES.items()}
NONE = 0


def varint(number):
    out = bytearray()
    number &= (1 << 64) - 1
    while number >= 0x80:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def number(field, value):
    return varint(field << 3) + varint(int(value))


def content(field, value):
    value = value.encode() if isinstance(value, str) else value
    return varint(field << 3 | 2) + varint(len(value)) + value


def tensor(array, name=""):
    array = numpy.asarray(array)
    out = b"".join(number(1, size) for size in array.shape) + number(2, DTYPES[array.dtype.name])
    if array.dtype.name == "object":  # strings
        return out + b"".join(content(6, text) for text in array.reshape(-1).tolist()) + content(8, name)
    return out + content(8, name) + content(9, array.tobytes())


def attribute(name, value):
    out = content(1, name)
    if isinstance(value, float):
        return out + varint(2 << 3 | 5) + struct.pack("<f", value) + number(20, 1)
    if isinstance(value, (int, numpy.integer)):
        return out + number(3, value) + number(20, 2)
    if isinstance(value, str):
        return out + content(4, value) + number(20, 3)
    if isinstance(value, numpy.ndarray):
        return out + content(5, tensor(value)) + number(20, 4)
    if value and isinstance(value[0], float):
        return out + b"".join(varint(7 << 3 | 5) + struct.pack("<f", one) for one in value) + number(20, 6)
    if value and isinstance(value[0], str):
        return out + b"".join(content(9, one) for one in value) + number(20, 8)
    return out + b"".join(number(8, one) for one in value) + number(20, 7)


def node(op, inputs, outputs, attributes=None, name=""):
    domain, _, kind = op.rpartition(".")
    out = b"".join(content(1, one) for one in inputs) + b"".join(content(2, one) for one in outputs)
    out += content(3, name) + content(4, kind)
    out += b"".join(content(5, attribute(key, value)) for key, value in (attributes or {}).items())
    return out + content(7, domain)


def value_info(name, dtype, dims):
    """dims: numbers, names, or None for a rank that is not known."""
    shape = b"" if dims is None else content(2, b"".join(
        content(1, content(2, size) if isinstance(size, str) else number(1, size)) for size in dims))
    return content(1, name) + content(2, content(1, number(1, DTYPES[dtype]) + shape))


def model(nodes, inputs, outputs, initializers=(), opset=23):
    """inputs: (name, dtype, dims); outputs: names; initializers: (name, array)."""
    graph = b"".join(content(1, one) for one in nodes) + content(2, "g")
    graph += b"".join(content(5, tensor(array, name)) for name, array in initializers)
    graph += b"".join(content(11, value_info(*one)) for one in inputs)
    graph += b"".join(content(12, content(1, name)) for name in outputs)
    trees = any(content(4, "TreeEnsemble") in one for one in nodes)  # of opset 5, which no longer has its predecessors
    domains = {"": opset, "com.microsoft": 1, "ai.onnx.ml": 5 if trees else 4}
    opsets = b"".join(content(8, content(1, domain) + number(2, version)) for domain, version in domains.items())
    return number(1, 10) + content(7, graph) + opsets


def read_varint(data, at):
    out = shift = 0
    while True:
        byte = data[at]
        out, shift, at = out | (byte & 0x7F) << shift, shift + 7, at + 1
        if byte < 0x80:
            return out, at


def fields(data):
    """(number, bytes) of each field with a length."""
    at = 0
    while at < len(data):
        key, at = read_varint(data, at)
        if key & 7 == 2:
            size, at = read_varint(data, at)
            yield key >> 3, data[at:at + size]
            at += size
        elif key & 7 == 0:
            _, at = read_varint(data, at)
        else:
            at += 4 if key & 7 == 5 else 8


def op_types(file):
    """The ops of a model's main graph, with their domains: "Conv", "com.microsoft.FusedConv"."""
    out = set()
    for node in (node for number, graph in fields(file) if number == 7 for field, node in fields(graph) if field == 1):
        texts = {number: text.decode() for number, text in fields(node) if number in (4, 7)}
        domain = texts.get(7, "")
        out.add(f"{domain}.{texts[4]}" if domain not in ("", "ai.onnx") else texts[4])
    return out
