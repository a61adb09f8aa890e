"""The same decoder parts in two vocabularies of ONNX: the operators of opset 23, and the plain ones of opset 18.

Shape letters: b batch, s new positions, t all positions (past and new), h hidden, g key/value heads, r query heads
per key/value head, d head size.
"""

import math

import numpy as np
from onnx import TensorProto


def inverse_frequencies(base, head_dim):
    """RoPE's d/2 angular speeds, computed in f64 and rounded once."""
    return (base ** -(np.arange(0, head_dim, 2, dtype=np.float64) / head_dim)).astype(np.float32)


def angles(g, position_ids, base, head_dim):
    """position_ids [b, s] -> angles [b, s, d/2]."""
    positions = g.op("Unsqueeze", g.op("Cast", position_ids, to=TensorProto.FLOAT), g.constant([-1]))
    return g.op("Mul", positions, g.constant(inverse_frequencies(base, head_dim), np.float32))


def silu(g, x):
    return g.op("Mul", x, g.op("Sigmoid", x))


class Standard23:
    """RMSNormalization, RotaryEmbedding, Attention and Gelu as single nodes."""

    opset = 23

    def rms_norm(self, g, x, weight, epsilon):
        return g.op("RMSNormalization", x, weight, axis=-1, epsilon=epsilon)

    def gelu_tanh(self, g, x):
        return g.op("Gelu", x, approximate="tanh")

    silu = staticmethod(silu)

    def rotary_tables(self, g, position_ids, base, head_dim):
        """cos and sin [b, s, d/2]: computed from the positions, so that no table bounds the context."""
        speed = angles(g, position_ids, base, head_dim)
        return g.op("Cos", speed), g.op("Sin", speed)

    def rotary(self, g, x, tables):
        """Rotates x [b, heads, s, d] in halves."""
        return g.op("RotaryEmbedding", x, *tables)

    def mask(self, g, allowed):
        """Attention takes `allowed` [b, 1, s, t] as it is: true where a query may look."""
        return allowed

    def attention(self, g, query, key, value, mask, past, present, config):
        """query [b, g r, s, d], key and value [b, g, s, d] -> [b, g r, s, d]; the cache goes through the node."""
        made = g.op("Attention", query, key, value, mask, *past, outputs=[None, *present],
                    scale=config.query_scale)
        return made[0]


class Plain18:
    """The same out of arithmetic, Softmax and MatMul, in the order in which exporters write it."""

    opset = 18

    def rms_norm(self, g, x, weight, epsilon):
        square = g.op("Pow", x, g.constant(2.0, np.float32))
        mean = g.op("ReduceMean", square, g.constant([-1]), keepdims=1)
        root = g.op("Sqrt", g.op("Add", mean, g.constant(epsilon, np.float32)))
        return g.op("Mul", g.op("Div", x, root), weight)

    def gelu_tanh(self, g, x):
        cube = g.op("Pow", x, g.constant(3.0, np.float32))
        inner = g.op("Add", x, g.op("Mul", cube, g.constant(0.044715, np.float32)))
        tanh = g.op("Tanh", g.op("Mul", inner, g.constant(math.sqrt(2 / math.pi), np.float32)))
        half = g.op("Mul", x, g.constant(0.5, np.float32))
        return g.op("Mul", half, g.op("Add", tanh, g.constant(1.0, np.float32)))

    silu = staticmethod(silu)

    def rotary_tables(self, g, position_ids, base, head_dim):
        """cos and sin [b, 1, s, d]: each half repeats the other."""
        speed = angles(g, position_ids, base, head_dim)
        both = g.op("Unsqueeze", g.op("Concat", speed, speed, axis=-1), g.constant([1]))
        return g.op("Cos", both), g.op("Sin", both)

    def rotary(self, g, x, tables):
        cos, sin = tables
        last, end = g.constant([-1]), g.constant([np.iinfo(np.int64).max])
        half = g.constant([self.head_dim // 2])
        low = g.op("Slice", x, g.constant([0]), half, last)
        high = g.op("Slice", x, half, end, last)
        turned = g.op("Concat", g.op("Neg", high), low, axis=-1)
        return g.op("Add", g.op("Mul", x, cos), g.op("Mul", turned, sin))

    def mask(self, g, allowed):
        """[b, 1, s, t]: 0 where a query may look, the lowest f32 elsewhere (a row without any stays finite)."""
        lowest = g.constant(np.finfo(np.float32).min, np.float32)
        return g.op("Where", allowed, g.constant(0.0, np.float32), lowest)

    def attention(self, g, query, key, value, mask, past, present, config):
        key, = g.op("Concat", past[0], key, outputs=[present[0]], axis=2)
        value, = g.op("Concat", past[1], value, outputs=[present[1]], axis=2)
        key, value = (self._repeat(g, x, config) for x in (key, value))
        scores = g.op("MatMul", query, g.op("Transpose", key, perm=[0, 1, 3, 2]))
        scores = g.op("Mul", scores, g.constant(config.query_scale, np.float32))
        weights = g.op("Softmax", g.op("Add", scores, mask), axis=-1)
        return g.op("MatMul", weights, value)

    def _repeat(self, g, x, config):
        """[b, g, t, d] -> [b, g r, t, d]: each key/value head r times in a row."""
        repeats = config.heads // config.kv_heads
        if repeats == 1:
            return x
        shape = g.op("Shape", x)
        batch, length = (g.op("Slice", shape, g.constant([i]), g.constant([i + 1])) for i in (0, 2))
        groups, size = g.constant([config.kv_heads]), g.constant([config.head_dim])
        wide = g.op("Concat", batch, groups, g.constant([repeats]), length, size, axis=0)
        many = g.op("Expand", g.op("Unsqueeze", x, g.constant([2])), wide)
        return g.op("Reshape", many, g.op("Concat", batch, g.constant([config.heads]), length, size, axis=0))


DIALECTS = {18: Plain18, 23: Standard23}
