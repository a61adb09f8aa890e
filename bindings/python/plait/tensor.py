"""Arrays: NumPy's in and out, without a copy where the memory fits."""
from __future__ import annotations

from enum import IntEnum
from typing import Any, Optional, Sequence

import numpy

from . import native
from .objects import NativeObject

ml_dtypes: Any
try:
    import ml_dtypes
except ImportError:  # bfloat16 and 8-bit floats are then u2 and u1 with their bits
    ml_dtypes = None


class DType(IntEnum):
    """Types of elements, by ONNX's numbers."""

    NONE = 0
    F32 = 1
    U8 = 2
    I8 = 3
    U16 = 4
    I16 = 5
    I32 = 6
    I64 = 7
    STRING = 8
    BOOL = 9
    F16 = 10
    F64 = 11
    U32 = 12
    U64 = 13
    C64 = 14
    C128 = 15
    BF16 = 16
    F8E4M3FN = 17
    F8E4M3FNUZ = 18
    F8E5M2 = 19
    F8E5M2FNUZ = 20
    U4 = 21
    I4 = 22
    F4E2M1 = 23
    F8E8M0 = 24
    U2 = 25
    I2 = 26


NUMPY = {DType.F32: "float32", DType.U8: "uint8", DType.I8: "int8", DType.U16: "uint16", DType.I16: "int16", DType.I32: "int32",
         DType.I64: "int64", DType.BOOL: "bool", DType.F16: "float16", DType.F64: "float64", DType.U32: "uint32",
         DType.U64: "uint64", DType.C64: "complex64", DType.C128: "complex128"}
# Those of ml_dtypes, and what their bits are without it.
ML_DTYPES = {DType.BF16: ("bfloat16", "uint16"), DType.F8E4M3FN: ("float8_e4m3fn", "uint8"),
             DType.F8E4M3FNUZ: ("float8_e4m3fnuz", "uint8"), DType.F8E5M2: ("float8_e5m2", "uint8"),
             DType.F8E5M2FNUZ: ("float8_e5m2fnuz", "uint8"), DType.F8E8M0: ("float8_e8m0fnu", "uint8")}
OURS = {name: dtype for dtype, name in NUMPY.items()} | {names[0]: dtype for dtype, names in ML_DTYPES.items()}


class Tensor(NativeObject):
    """A typed array of the library. `numpy.asarray` looks at its memory, which lives as long as the array. Types below a byte are
    their packed bytes, u8 [n]; those that NumPy lacks are ml_dtypes', or their bits as unsigned integers where that is not installed.
    Strings are copied: `numpy` makes an array of str of them. A sequence or an optional is a list of tensors (`of_parts`, `parts`).
    It has no early end: other objects may look at it."""

    def __init__(self, handle: int, keeps: Any = None) -> None:
        super().__init__(handle, native.plait_tensor_release, keeps)
        view = native.View()
        native.plait_tensor_view(handle, view)
        self.dtype, self.shape = DType(view.dtype), tuple(view.dims)
        self._data, self._bytes = view.data, view.bytes

    @staticmethod
    def copy(dtype: DType, shape: Sequence[int], elements: Any) -> Tensor:
        """From the bytes of anything that has a buffer."""
        return Tensor(native.plait_tensor_copy(int(dtype), numpy.asarray(shape, numpy.int64), elements))

    @staticmethod
    def of(array: Any, dtype: Optional[DType] = None) -> Tensor:
        """An array's memory, or a copy of it if it is not row-major. `dtype`: for elements that NumPy has no type for, given as
        unsigned integers of their size."""
        if isinstance(array, Tensor):
            return array
        found = numpy.ascontiguousarray(array)
        if found.dtype.kind in "OUST" and dtype in (None, DType.STRING) and (texts := texts_of(found)) is not None:
            return Tensor.copy(DType.STRING, numpy.shape(array), packed(texts))
        if found.ndim == 0 or numpy.ndim(array) == 0:
            found = found.reshape(())
        if found.dtype.byteorder == ">":
            found = found.astype(found.dtype.newbyteorder("="))
        ours = OURS.get(found.dtype.name) if dtype is None else dtype
        if ours is None:
            raise TypeError(f"elements of {found.dtype} have no type in ONNX that Plait knows")
        shape = numpy.asarray(found.shape, numpy.int64)
        return Tensor(native.plait_tensor_borrow(int(ours), shape, found.reshape(-1).view(numpy.uint8)), found)

    @staticmethod
    def of_parts(parts: Sequence[Any], dtype: Optional[DType] = None) -> Tensor:
        """A sequence, or an optional (of at most one part), as an input of a session. `dtype`: needed only without parts."""
        made = [Tensor.of(part) for part in parts]
        if not made and dtype is None:
            raise TypeError("a list without parts needs a dtype")
        return Tensor(native.plait_tensor_list(int(made[0].dtype if dtype is None else dtype), made))

    def parts(self) -> list[Tensor]:
        """The tensors of a list: an output that is a sequence or an optional."""
        return [Tensor(native.plait_tensor_part(self, i), self) for i in range(native.plait_tensor_parts(self))]

    @staticmethod
    def read(path: str, expected: DType = DType.NONE) -> Tensor:
        """From NumPy's .npy file; `expected`: for elements that NumPy has no type for."""
        return Tensor(native.plait_tensor_read(path, int(expected)))

    def write(self, path: str) -> None:
        """As such a file."""
        native.plait_tensor_write(self, path)

    def text(self) -> str:
        """A u8 tensor as UTF-8."""
        text: str = native.plait_tensor_text(self)
        if not text and (self.dtype is not DType.U8 or len(self.shape) != 1):
            raise TypeError("the tensor is no text")
        return text

    def memory_interface(self) -> dict[str, Any]:
        """All bytes, as NumPy looks at them."""
        return {"version": 3, "typestr": "|u1", "shape": (self._bytes,), "data": (self._data, False)}

    def memory(self) -> numpy.ndarray[Any, Any]:
        """All bytes, not copied."""
        return numpy.asarray(Memory(self))

    @property
    def __array_interface__(self) -> dict[str, Any]:
        if self.dtype in NUMPY:
            kind = numpy.dtype(NUMPY[self.dtype])
        elif self.dtype in ML_DTYPES:
            kind = numpy.dtype(ML_DTYPES[self.dtype][1])
        else:
            return self.memory_interface()
        return {"version": 3, "typestr": kind.str, "shape": self.shape, "data": (self._data, False)}

    def numpy(self) -> numpy.ndarray[Any, Any]:
        """The elements, not copied; strings as an array of objects."""
        if self.dtype is DType.STRING:
            out = numpy.empty(self.shape, object)
            out.reshape(-1)[:] = unpacked(bytes(self.memory()), out.size)
            return out
        array = numpy.asarray(self)
        if self.dtype in ML_DTYPES and ml_dtypes is not None:
            return array.view(getattr(ml_dtypes, ML_DTYPES[self.dtype][0]))
        return array


class Memory:
    """The bytes of a tensor, for numpy.asarray, which keeps this and so the tensor."""

    def __init__(self, tensor: Tensor) -> None:
        self.tensor = tensor
        self.__array_interface__ = tensor.memory_interface()


def texts_of(array: numpy.ndarray[Any, Any]) -> Optional[list[bytes]]:
    """The elements as UTF-8; None if they are no strings."""
    if array.dtype.kind == "S":
        return list(array.reshape(-1).tolist())
    texts = array.reshape(-1).tolist()
    if not all(isinstance(text, (str, bytes)) for text in texts):
        return None
    return [text if isinstance(text, bytes) else text.encode() for text in texts]


def packed(texts: Sequence[bytes]) -> bytes:
    """Where each text ends, and all texts."""
    ends = numpy.cumsum([len(text) for text in texts], dtype=numpy.uint64)
    return bytes(ends.astype("<u8").tobytes() + b"".join(texts))


def unpacked(memory: bytes, count: int) -> list[str]:
    """The inverse; bytes that are no UTF-8 are replaced."""
    ends = [0] + numpy.frombuffer(memory, numpy.uint64, count).tolist()
    texts = memory[8 * count:]
    return [texts[ends[i]:ends[i + 1]].decode(errors="replace") for i in range(count)]
