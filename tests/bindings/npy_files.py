"""NumPy's .npy files without NumPy: as much as the tests of the command line need."""
import array
import ast
import struct

CODES = {"<f4": "f", "<f8": "d", "<i8": "q", "<i4": "i", "<u2": "H", "<V2": "H", "|u1": "B", "|b1": "b", "<f2": "H"}


def read(path):
    """(descr, shape, flat list of elements)"""
    with open(path, "rb") as file:
        data = file.read()
    assert data[:6] == b"\x93NUMPY", path
    width = 2 if data[6] == 1 else 4
    length = int.from_bytes(data[8:8 + width], "little")
    header = ast.literal_eval(data[8 + width:8 + width + length].decode())
    values = array.array(CODES[header["descr"]], data[8 + width + length:])
    assert not header["fortran_order"]
    count = 1
    for size in header["shape"]:
        count *= size
    assert len(values) == count, (path, header, len(values))
    return header["descr"], header["shape"], values


def write(path, descr, shape, values, version=1, fortran=False):
    header = repr({"descr": descr, "fortran_order": fortran, "shape": tuple(shape)}).encode()
    width = 2 if version == 1 else 4
    header += b" " * (63 - (8 + width + len(header)) % 64) + b"\n"
    with open(path, "wb") as file:
        file.write(b"\x93NUMPY" + bytes([version, 0]) + struct.pack("<H" if version == 1 else "<I", len(header)))
        file.write(header + array.array(CODES[descr], values).tobytes())


def write_strings(path, texts):
    """A list, as "<U"."""
    longest = max(map(len, texts))
    header = repr({"descr": f"<U{longest}", "fortran_order": False, "shape": (len(texts),)}).encode()
    header += b" " * (63 - (10 + len(header)) % 64) + b"\n"
    with open(path, "wb") as file:
        file.write(b"\x93NUMPY\1\0" + struct.pack("<H", len(header)) + header)
        file.write(b"".join(text.ljust(longest, "\0").encode("utf-32-le") for text in texts))


def read_strings(path):
    with open(path, "rb") as file:
        data = file.read()
    start = 10 + int.from_bytes(data[8:10], "little")
    header = ast.literal_eval(data[10:start].decode())
    size = 4 * int(header["descr"][2:])
    return [data[at:at + size].decode("utf-32-le").rstrip("\0") for at in range(start, len(data), size)]
