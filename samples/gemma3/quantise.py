"""Weights in blocks of 4 or 8 bits, as com.microsoft MatMulNBits and GatherBlockQuantized read them.

A block of 32 numbers along k is (code - 2^(bits - 1)) * scale, without zero points. The scale maps the number that is
farthest from zero to the lowest code, whose range is the wider by one; so scales have either sign.
"""

import numpy as np

BLOCK = 32
BITS = {"int4": 4, "int8": 8}


def quantise(rows, bits):
    """rows [n, k] f32, k a multiple of 32 -> codes u8 [n, k / 32, 4 * bits], scales f32 [n, k / 32]."""
    n, k = rows.shape
    if k % BLOCK:
        raise ValueError(f"rows of {k} numbers are not whole blocks of {BLOCK}")
    blocks = np.ascontiguousarray(rows, np.float32).reshape(n, k // BLOCK, BLOCK)
    half = 1 << (bits - 1)
    farthest = np.take_along_axis(blocks, np.abs(blocks).argmax(-1, keepdims=True), -1)
    scales = farthest / -half
    inverse = np.divide(1, scales, out=np.zeros_like(scales), where=scales != 0)
    codes = np.clip(np.rint(blocks * inverse) + half, 0, 2 * half - 1).astype(np.uint8)
    if bits == 4:
        codes = codes[..., 0::2] | codes[..., 1::2] << 4
    return codes, scales[..., 0]
