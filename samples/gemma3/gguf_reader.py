"""Reads the header of a GGUF file and hands out its tensors as f32.

The gguf package's own reader builds a Python object for each of Gemma's 262144 token strings, which takes eight
seconds and 730 MiB; this one reads strings straight from the mapped file. Only dequantisation is the package's.
"""

import mmap
import struct
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType
from gguf.quants import dequantize

MAGIC = b"GGUF"
VERSION = 3
MAX_DIMS = 4
STRING, ARRAY = 8, 9
# Codes of the value types of a GGUF header, as (struct letter, numpy type).
SCALARS = {
    0: ("B", "<u1"), 1: ("b", "<i1"), 2: ("H", "<u2"), 3: ("h", "<i2"), 4: ("I", "<u4"), 5: ("i", "<i4"),
    6: ("f", "<f4"), 7: ("?", "<u1"), 10: ("Q", "<u8"), 11: ("q", "<i8"), 12: ("d", "<f8"),
}


class GgufError(Exception):
    """The file is not a GGUF file that this reader understands; the message contains where and why."""


@dataclass(frozen=True)
class TensorInfo:
    """One tensor of the file: shape outermost dimension first, offset in bytes from the start of the data."""

    shape: tuple
    kind: GGMLQuantizationType
    offset: int

    @property
    def row_bytes(self):
        block, size = GGML_QUANT_SIZES[self.kind]
        return self.shape[-1] // block * size

    @property
    def rows(self):
        return int(np.prod(self.shape[:-1], dtype=np.int64))


class GgufFile:
    """Metadata in `fields` (a dict), tensors through `rows()`; the file stays mapped as long as the object lives."""

    def __init__(self, path):
        self.path = Path(path)
        with open(path, "rb") as file:
            self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        self._at = 0
        self.fields = {}
        self.tensors = {}
        try:
            self._read_header()
        except (struct.error, IndexError, UnicodeDecodeError, OverflowError, MemoryError) as error:
            raise GgufError(f"{self.path}: damaged header near byte {self._at} ({error})") from error
        self._check_extent()

    def rows(self, name, first=0, count=None):
        """Rows `first` to `first + count` of a tensor (all of it by default), dequantised to f32 [count, columns]."""
        info = self.tensors[name]
        count = info.rows - first if count is None else count
        start = self._data + info.offset + first * info.row_bytes
        raw = np.frombuffer(self._map, np.uint8, count * info.row_bytes, start)
        if info.kind == GGMLQuantizationType.F32:
            return raw.view("<f4").reshape(count, info.shape[-1])
        return dequantize(raw.reshape(count, info.row_bytes), info.kind)

    def _read_header(self):
        if self._map[:4] != MAGIC:
            raise GgufError(f"{self.path}: not a GGUF file (it starts with {self._map[:4]!r})")
        self._at = 4
        version = self._scalar("I")
        if version != VERSION:
            raise GgufError(f"{self.path}: GGUF version {version}, expected {VERSION}")
        tensor_count, field_count = self._scalar("Q"), self._scalar("Q")
        for _ in range(field_count):
            key = self._string()
            self.fields[key] = self._value(self._scalar("I"))
        for _ in range(tensor_count):
            self._read_tensor_info()
        alignment = self.fields.get("general.alignment", 32)
        self._data = -(-self._at // alignment) * alignment

    def _read_tensor_info(self):
        name = self._string()
        dims = self._scalar("I")
        if dims > MAX_DIMS:
            raise GgufError(f"{self.path}: tensor {name} has {dims} dimensions, at most {MAX_DIMS} are possible")
        # GGUF lists the innermost dimension first.
        shape = tuple(self._scalar("Q") for _ in range(dims))[::-1]
        code = self._scalar("I")
        try:
            kind = GGMLQuantizationType(code)
        except ValueError as error:
            raise GgufError(f"{self.path}: tensor {name} has the unknown type {code}") from error
        self.tensors[name] = TensorInfo(shape, kind, self._scalar("Q"))

    def _check_extent(self):
        size = len(self._map)
        for name, info in self.tensors.items():
            end = self._data + info.offset + info.rows * info.row_bytes
            if end > size:
                raise GgufError(f"{self.path}: tensor {name} ends at byte {end}, the file has {size}: it is cut short")

    def _scalar(self, letter):
        value, = struct.unpack_from("<" + letter, self._map, self._at)
        self._at += struct.calcsize("<" + letter)
        return value

    def _string(self):
        length = self._scalar("Q")
        raw = self._map[self._at : self._at + length]
        if len(raw) != length:
            raise IndexError(f"a string of {length} bytes passes the end of the file")
        self._at += length
        return raw.decode("utf-8")

    def _value(self, kind):
        if kind == STRING:
            return self._string()
        if kind == ARRAY:
            return self._array()
        if kind not in SCALARS:
            raise GgufError(f"{self.path}: unknown metadata type {kind} near byte {self._at}")
        return self._scalar(SCALARS[kind][0])

    def _array(self):
        kind, count = self._scalar("I"), self._scalar("Q")
        if kind in SCALARS:
            dtype = np.dtype(SCALARS[kind][1])
            values = np.frombuffer(self._map, dtype, count, self._at) if count else np.empty(0, dtype)
            self._at += values.nbytes
            return values
        return [self._value(kind) for _ in range(count)]
