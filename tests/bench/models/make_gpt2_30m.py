#!/usr/bin/env python3
"""Makes a GPT-2-shaped model of 27 million random weights, as ONNX: what the training benchmark trains in full.

    make_gpt2_30m.py OUT [--layers N] [--vocabulary N]

Writes OUT/model.onnx and its data file: 6 layers of 512 features and 8 heads, a vocabulary of 16384 whose table is also
the head, positions up to 1024, in f32, initialised as GPT-2 is. Needs numpy and onnx. What is there already is not made again.
"""

import argparse
import math
import shutil
import sys
import zlib
from pathlib import Path

import numpy as np
from onnx import TensorProto

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[2] / "samples" / "gemma3"))
from onnx_writer import GraphWriter  # noqa: E402

LAYERS, HIDDEN, HEADS, VOCABULARY, POSITIONS = 6, 512, 8, 16384, 1024
HEAD_DIM, FFN, EPSILON, SPREAD = HIDDEN // HEADS, 4 * HIDDEN, 1e-5, 0.02
BATCH, NEW, PAST, TOTAL = "batch_size", "sequence_length", "past_sequence_length", \
    "past_sequence_length + sequence_length"


def initial(name, shape):
    """GPT-2's: normal, narrower where a layer's result is added to what came before; norms are ones and zeros."""
    if len(shape) == 1:
        return np.full(shape, 1.0 if name.startswith("ln_") or ".ln_" in name and name.endswith("weight") else 0.0, np.float32)
    spread = SPREAD / math.sqrt(2 * LAYERS) if name.endswith("c_proj.weight") else SPREAD
    return np.float32(spread) * np.random.default_rng([1, zlib.crc32(name.encode())]).standard_normal(shape, np.float32)


class Maker:
    def __init__(self, writer):
        self.g = writer

    def weight(self, name, *shape):
        return self.g.weight(name, shape, [initial(name, shape)])

    def norm(self, name, x):
        return self.g.op("LayerNormalization", x, self.weight(f"{name}.weight", HIDDEN),
                         self.weight(f"{name}.bias", HIDDEN), axis=-1, epsilon=EPSILON)

    def linear(self, name, x, rows, columns):
        """x w + b, with w as GPT-2 keeps it: inputs first."""
        made = self.g.op("MatMul", x, self.weight(f"{name}.weight", rows, columns))
        return self.g.op("Add", made, self.weight(f"{name}.bias", columns))

    def heads(self, x):
        x = self.g.op("Reshape", x, self.g.constant([0, 0, HEADS, HEAD_DIM]))
        return self.g.op("Transpose", x, perm=[0, 2, 1, 3])

    def mask(self, ids, attention_mask):
        """[b, 1, s, t]: key j is open to query i if it is not padding and j <= i."""
        g = self.g
        new = g.op("Gather", g.op("Shape", ids), g.constant(1))
        total = g.op("Gather", g.op("Shape", attention_mask), g.constant(1))
        keys = g.op("Range", g.constant(0), total, g.constant(1))
        queries = g.op("Unsqueeze", g.op("Range", g.op("Sub", total, new), total, g.constant(1)), g.constant([1]))
        real = g.op("Unsqueeze", g.op("Cast", attention_mask, to=TensorProto.BOOL), g.constant([1, 2]))
        return g.op("And", g.op("LessOrEqual", keys, queries), real)

    def attention(self, layer, x, mask):
        g, name = self.g, f"h.{layer}.attn"
        packed = self.linear(f"{name}.c_attn", x, HIDDEN, 3 * HIDDEN)
        parts = g.op("Split", packed, outputs=[f"{name}.{part}" for part in "qkv"], axis=-1, num_outputs=3)
        query, key, value = (self.heads(part) for part in parts)
        past = [g.input(f"past_key_values.{layer}.{kind}", TensorProto.FLOAT, [BATCH, HEADS, PAST, HEAD_DIM])
                for kind in ("key", "value")]
        present = [f"present.{layer}.{kind}" for kind in ("key", "value")]
        made = g.op("Attention", query, key, value, mask, *past, outputs=[None, *present],
                    scale=1 / math.sqrt(HEAD_DIM))[0]
        made = g.op("Reshape", g.op("Transpose", made, perm=[0, 2, 1, 3]), g.constant([0, 0, HIDDEN]))
        return self.linear(f"{name}.c_proj", made, HIDDEN, HIDDEN), present

    def mlp(self, layer, x):
        wide = self.g.op("Gelu", self.linear(f"h.{layer}.mlp.c_fc", x, HIDDEN, FFN), approximate="tanh")
        return self.linear(f"h.{layer}.mlp.c_proj", wide, FFN, HIDDEN)

    def build(self):
        g = self.g
        ids = g.input("input_ids", TensorProto.INT64, [BATCH, NEW])
        attention_mask = g.input("attention_mask", TensorProto.INT64, [BATCH, TOTAL])
        positions = g.input("position_ids", TensorProto.INT64, [BATCH, NEW])
        table = self.weight("wte.weight", VOCABULARY, HIDDEN)
        x = g.op("Add", g.op("Gather", table, ids),
                 g.op("Gather", self.weight("wpe.weight", POSITIONS, HIDDEN), positions))
        mask, presents = self.mask(ids, attention_mask), []
        for layer in range(LAYERS):
            with g.scope(f"h.{layer}"):
                made, present = self.attention(layer, self.norm(f"h.{layer}.ln_1", x), mask)
                presents += present
                x = g.op("Add", x, made)
                x = g.op("Add", x, self.mlp(layer, self.norm(f"h.{layer}.ln_2", x)))
        g.op("MatMul", self.norm("ln_f", x), g.op("Transpose", table, perm=[1, 0]), outputs=["logits"])
        g.output("logits", TensorProto.FLOAT, [BATCH, NEW, VOCABULARY])
        for name in presents:
            g.output(name, TensorProto.FLOAT, [BATCH, HEADS, TOTAL, HEAD_DIM])


def main():
    global LAYERS, VOCABULARY
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--layers", type=int, default=LAYERS)
    parser.add_argument("--vocabulary", type=int, default=VOCABULARY)
    options = parser.parse_args()
    out, LAYERS, VOCABULARY = options.out, options.layers, options.vocabulary
    if (out / "model.onnx").exists():
        return 0
    part = out.with_name(f".{out.name}.part")
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir(parents=True)
    writer = GraphWriter(part / "model.onnx", 23, "gpt2")
    Maker(writer).build()
    writer.save()
    part.rename(out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
