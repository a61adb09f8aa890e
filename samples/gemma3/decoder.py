"""The graph of a Llama or Gemma shaped decoder: what the configuration says, in the operators of one dialect.

Shape letters as in dialects.py; also f feed-forward and v vocabulary.
"""

from dataclasses import dataclass

import numpy as np
from dialects import DIALECTS
from onnx import TensorProto
from onnx_writer import MICROSOFT, narrow, widen
from quantise import BITS, BLOCK, quantise

BATCH, NEW, PAST, TOTAL = "batch_size", "sequence_length", "past_sequence_length", \
    "past_sequence_length + sequence_length"


@dataclass(frozen=True)
class DecoderConfig:
    """Sizes and choices of a decoder. `windows` and `rope_bases` have one entry per layer; window 0 sees all."""

    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    ffn: int
    vocab: int
    windows: tuple
    rope_bases: tuple
    query_scale: float
    epsilon: float = 1e-6
    activation: str = "silu"
    qk_norm: bool = False
    post_norms: bool = False
    embed_scale: float = 1.0
    tied: bool = True

    @property
    def layers(self):
        return len(self.windows)


class DecoderBuilder:
    """Writes a decoder into a GraphWriter.

    `blocks(name)` yields a weight's f32 blocks along its first dimension, in the layout that the graph stores:
    [in, out] for a linear layer, [v, h] for the embedding. Names are those that transformers gives the modules.
    `dtype` is f32 or bf16, or int4 or int8: then all these weights are quantised, and products are MatMulNBits.
    """

    def __init__(self, writer, config, blocks, dtype="f32"):
        self.g = writer
        self.config = config
        self.blocks = blocks
        self.dtype = dtype
        self.bits = BITS.get(dtype, 0)
        self.dialect = DIALECTS[writer.opset]()
        self.dialect.head_dim = config.head_dim

    def build(self):
        """Adds the whole graph: ids, mask, positions and past in; logits of all positions and present out."""
        g, config = self.g, self.config
        ids = g.input("input_ids", TensorProto.INT64, [BATCH, NEW])
        attention_mask = g.input("attention_mask", TensorProto.INT64, [BATCH, TOTAL])
        positions = g.input("position_ids", TensorProto.INT64, [BATCH, NEW])
        x, table = self._embed(ids)
        masks = self._masks(ids, attention_mask)
        tables = self._rotary_tables(positions)
        presents = []
        for layer in range(config.layers):
            with g.scope(f"layers.{layer}"):
                x = self._layer(layer, x, masks[config.windows[layer]], tables[config.rope_bases[layer]], presents)
        x = self._norm("model.norm.weight", x, config.hidden)
        with g.scope("lm_head"):
            self._head(x, table)
        for name in presents:
            g.output(name, TensorProto.FLOAT, [BATCH, config.kv_heads, TOTAL, config.head_dim])

    def _embed(self, ids):
        """Returns the scaled embedding [b, s, h] and the name of the table [v, h]."""
        g, config = self.g, self.config
        with g.scope("embed_tokens"):
            if self.bits:
                table = "model.embed_tokens.weight"
                codes, scales = self._quantised(table, self.blocks(table), config.vocab, config.hidden)
                codes = g.alias(f"{table}.rows", codes, (config.vocab, config.hidden * self.bits // 8))
                x = g.op("GatherBlockQuantized", codes, ids, scales, domain=MICROSOFT, bits=self.bits,
                         block_size=BLOCK, gather_axis=0, quantize_axis=1)
            else:
                table = self._stored("model.embed_tokens.weight", (config.vocab, config.hidden))
                x = self._to_f32(g.op("Gather", table, ids))
            if config.embed_scale != 1.0:
                x = g.op("Mul", x, g.constant(config.embed_scale, np.float32))
        return x, table

    def _masks(self, ids, attention_mask):
        """One mask per window in use: key j is open to query i if it is not padding, j <= i and i - j < window."""
        g = self.g
        with g.scope("mask"):
            new = g.op("Gather", g.op("Shape", ids), g.constant(1))
            total = g.op("Gather", g.op("Shape", attention_mask), g.constant(1))
            keys = g.op("Range", g.constant(0), total, g.constant(1))
            queries = g.op("Range", g.op("Sub", total, new), total, g.constant(1))
            queries = g.op("Unsqueeze", queries, g.constant([1]))
            real = g.op("Unsqueeze", g.op("Cast", attention_mask, to=TensorProto.BOOL), g.constant([1, 2]))
            causal = g.op("And", g.op("LessOrEqual", keys, queries), real)
            masks = {}
            for window in sorted(set(self.config.windows)):
                allowed = causal
                if window:
                    near = g.op("Less", g.op("Sub", queries, keys), g.constant(window))
                    allowed = g.op("And", causal, near)
                masks[window] = self.dialect.mask(g, allowed)
        return masks

    def _rotary_tables(self, positions):
        with self.g.scope("rotary_emb"):
            return {base: self.dialect.rotary_tables(self.g, positions, base, self.config.head_dim)
                    for base in sorted(set(self.config.rope_bases))}

    def _layer(self, layer, x, mask, tables, presents):
        """One decoder layer: x [b, s, h] -> [b, s, h]."""
        g, config, prefix = self.g, self.config, f"model.layers.{layer}"
        with g.scope("self_attn"):
            y = self._norm(f"{prefix}.input_layernorm.weight", x, config.hidden)
            y = self._attention(layer, y, mask, tables, presents)
        # Gemma norms what each half of the layer returns; the norm that Llama has there stands before the MLP.
        before_mlp = "post_attention_layernorm"
        if config.post_norms:
            y = self._norm(f"{prefix}.post_attention_layernorm.weight", y, config.hidden)
            before_mlp = "pre_feedforward_layernorm"
        x = g.op("Add", x, y)
        with g.scope("mlp"):
            y = self._mlp(prefix, self._norm(f"{prefix}.{before_mlp}.weight", x, config.hidden))
        if config.post_norms:
            y = self._norm(f"{prefix}.post_feedforward_layernorm.weight", y, config.hidden)
        return g.op("Add", x, y)

    def _attention(self, layer, x, mask, tables, presents):
        g, config, prefix = self.g, self.config, f"model.layers.{layer}.self_attn"
        query = self._heads(f"{prefix}.q", x, config.heads, config.qk_norm)
        key = self._heads(f"{prefix}.k", x, config.kv_heads, config.qk_norm)
        value = self._heads(f"{prefix}.v", x, config.kv_heads, False)
        query, key = (self.dialect.rotary(g, part, tables) for part in (query, key))
        past = [g.input(f"past_key_values.{layer}.{kind}", TensorProto.FLOAT,
                        [BATCH, config.kv_heads, PAST, config.head_dim]) for kind in ("key", "value")]
        present = [f"present.{layer}.{kind}" for kind in ("key", "value")]
        presents += present
        y = self.dialect.attention(g, query, key, value, mask, past, present, config)
        y = g.op("Transpose", y, perm=[0, 2, 1, 3])
        y = g.op("Reshape", y, g.constant([0, 0, config.heads * config.head_dim]))
        return self._linear(f"{prefix}.o_proj", y, config.heads * config.head_dim, config.hidden)

    def _heads(self, prefix, x, heads, norm):
        """Projects x [b, s, h] to [b, heads, s, d]."""
        g, config = self.g, self.config
        y = self._linear(f"{prefix}_proj", x, config.hidden, heads * config.head_dim)
        y = g.op("Reshape", y, g.constant([0, 0, heads, config.head_dim]))
        if norm:
            y = self._norm(f"{prefix}_norm.weight", y, config.head_dim)
        return g.op("Transpose", y, perm=[0, 2, 1, 3])

    def _mlp(self, prefix, x):
        g, config = self.g, self.config
        gate = self._linear(f"{prefix}.mlp.gate_proj", x, config.hidden, config.ffn)
        up = self._linear(f"{prefix}.mlp.up_proj", x, config.hidden, config.ffn)
        gate = getattr(self.dialect, config.activation)(g, gate)
        return self._linear(f"{prefix}.mlp.down_proj", g.op("Mul", gate, up), config.ffn, config.hidden)

    def _head(self, x, table):
        """Logits of every position. A tied head reads the embedding's own copy, turned by a Transpose."""
        g, config = self.g, self.config
        if self.bits:
            if not config.tied:
                table = self._quantised_linear("lm_head", config.hidden, config.vocab)
            self._multiply(table, x, config.hidden, config.vocab, outputs=["logits"])
            g.output("logits", TensorProto.FLOAT, [BATCH, NEW, config.vocab])
            return
        if config.tied:
            weight = g.op("Transpose", self._to_f32(table), perm=[1, 0])
        else:
            weight = self._to_f32(self._stored("lm_head.weight", (config.hidden, config.vocab)))
        g.op("MatMul", x, weight, outputs=["logits"])
        g.output("logits", TensorProto.FLOAT, [BATCH, NEW, config.vocab])

    def _linear(self, name, x, rows, columns):
        with self.g.scope(name.rsplit(".", 1)[-1]):
            if self.bits:
                return self._multiply(self._quantised_linear(name, rows, columns), x, rows, columns)
            return self.g.op("MatMul", x, self._to_f32(self._stored(f"{name}.weight", (rows, columns))))

    def _quantised_linear(self, name, rows, columns):
        """Writes a weight that the blocks give as [in, out]; the quantised form has outputs first. Returns its name."""
        weight = np.concatenate(list(self.blocks(f"{name}.weight")))
        self._quantised(f"{name}.weight", [weight.T], columns, rows)
        return f"{name}.weight"

    def _quantised(self, name, blocks, n, k):
        """Writes codes u8 [n, k / 32, bytes] and scales [n, k / 32] of rows that come in blocks; returns both names."""
        scales = []

        def codes():
            for block in blocks:  # bf16 numbers, as a model is published
                made, scale = quantise(widen(narrow(block, "bf16")), self.bits)
                scales.append(scale)
                yield made

        shape = (n, k // BLOCK, BLOCK * self.bits // 8)
        return (self.g.weight(f"{name}.codes", shape, codes(), "u8"),
                self.g.weight(f"{name}.scales", shape[:2], scales))

    def _multiply(self, name, x, k, n, outputs=None):
        """x [..., k] times a quantised weight. Activations stay f32 where an engine follows accuracy_level 1."""
        return self.g.op("MatMulNBits", x, f"{name}.codes", f"{name}.scales", outputs=outputs, domain=MICROSOFT,
                         K=k, N=n, bits=self.bits, block_size=BLOCK, accuracy_level=1)

    def _norm(self, name, x, size):
        """Norm weights stay f32: they are a few thousand numbers."""
        with self.g.scope(name.split(".")[-2]):
            weight = self.g.weight(name, (size,), self.blocks(name))
            return self.dialect.rms_norm(self.g, x, weight, self.config.epsilon)

    def _stored(self, name, shape):
        return self.g.weight(name, shape, self.blocks(name), self.dtype)

    def _to_f32(self, value):
        """All arithmetic is f32; narrow weights are widened where they are read."""
        return value if self.dtype != "bf16" else self.g.op("Cast", value, to=TensorProto.FLOAT)
