"""Nodes of 8-bit codes, so that ONNX Runtime computes the standard's result on every processor.

On x86-64 without VNNI it adds products of unsigned and signed codes in pairs of 16 bits, which saturate: 255 x 127 twice is 64,770, not
32,767. The standard's sums are exact, and so are ONNX Runtime's of unsigned codes by unsigned ones. So it is given signed codes as
unsigned ones: 128 higher, as their zero points are, which changes no result.
"""
import numpy

# By op: (codes, their zero points) among the operands, and which of the operands is the zero point of the result, if that has codes.
CODES = {"MatMulInteger": ([(0, 2), (1, 3)], None),
         "com.microsoft.QLinearConv": ([(0, 2), (3, 5)], 7),
         "com.microsoft.QGemm": ([(0, 2), (3, 5)], 8),
         "com.microsoft.MatMulIntegerToFloat": ([(0, 4), (1, 5)], None),
         "com.microsoft.DynamicQuantizeMatMul": ([(1, 3)], None),
         "com.microsoft.DynamicQuantizeLSTM": ([(1, 9), (2, 11)], None),
         "com.microsoft.QAttention": ([(0, 6), (1, 7)], None)}


def higher(array):
    return numpy.asarray(array.astype(int) + 128, "uint8")


def signed(array):
    return array is not None and array.dtype == numpy.int8


def as_unsigned(op, operands):
    """The operands without signed codes, and whether the codes of the result are 128 higher for it."""
    pairs, result = CODES.get(op, ([], None))
    operands = list(operands)
    result_is_signed = result is not None and result < len(operands) and signed(operands[result])
    if result_is_signed:
        operands[result] = higher(operands[result])
    for codes, zero in pairs:
        if not signed(operands[codes]):
            continue
        operands[codes] = higher(operands[codes])
        operands += [None] * (zero + 1 - len(operands))
        operands[zero] = numpy.asarray(128, "uint8") if operands[zero] is None else higher(operands[zero])
    return operands, result_is_signed


def results(runtime, one_node, op, operands, attributes, outputs):
    """What the standard defines of a node, by ONNX Runtime."""
    unsigned, shifted = as_unsigned(op, operands)
    got = runtime.run(*one_node(op, unsigned, attributes, outputs))
    return [numpy.asarray(one.astype(int) - 128, "int8") for one in got] if shifted else got
