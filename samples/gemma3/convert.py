#!/usr/bin/env python3
"""Turns the GGUF file of Gemma 3 270M into a directory with model.onnx, its data, a tokenizer and configurations.

Needs gguf, numpy and onnx. The directory appears under its name only when it is complete.
"""

import argparse
import math
import os
import shutil
import sys
import time
from pathlib import Path

from decoder import DecoderBuilder, DecoderConfig
from gguf_reader import GgufError, GgufFile
from onnx_writer import GraphWriter
from text_files import generation_config, model_config, special_ids, tokenizer_config, tokenizer_json, write_json

NOTICE = "Gemma is provided under and subject to the Gemma Terms of Use found at ai.google.dev/gemma/terms"
# Raised when the files that are written change, so that fetch.sh converts again.
REVISION = 1
# Rows of the embedding that are dequantised at a time: 16384 x 640 f32 are 42 MB.
ROWS_AT_ONCE = 16384
# The file does not contain these; they belong to the architecture.
LOCAL_ROPE_BASE = 10000.0
FULL_ATTENTION_EVERY = 6
PARTS = {
    "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output", "self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm",
    "input_layernorm": "attn_norm", "post_attention_layernorm": "post_attention_norm",
    "pre_feedforward_layernorm": "ffn_norm", "post_feedforward_layernorm": "post_ffw_norm",
    "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down",
}


class Progress:
    """Prints a line now and then while a long step runs."""

    def __init__(self, what, total):
        self.what, self.total, self.done = what, total, 0
        self.start = self.shown = time.monotonic()

    def add(self, amount):
        self.done += amount
        if time.monotonic() - self.shown > 1.0:
            self.shown = time.monotonic()
            print(f"  {self.what}: {100 * self.done // self.total} %", flush=True)

    def end(self):
        print(f"  {self.what}: done in {time.monotonic() - self.start:.1f} s", flush=True)


def read_config(gguf):
    """The decoder's configuration, and the context length, from the metadata; refuses what is not Gemma 3 text."""
    fields = gguf.fields
    architecture = fields.get("general.architecture")
    if architecture != "gemma3":
        raise GgufError(f"{gguf.path}: architecture {architecture!r}, expected 'gemma3'")
    if "gemma3.rope.scaling.type" in fields or "gemma3.rope.scaling.factor" in fields:
        raise GgufError(f"{gguf.path}: scaled RoPE (Gemma 3 4B and larger) is not handled by this sample")
    if "output.weight" in gguf.tensors:
        raise GgufError(f"{gguf.path}: an untied head is not handled by this sample")
    try:
        field = {key.split(".", 1)[1]: value for key, value in fields.items() if key.startswith("gemma3.")}
        full = [(layer + 1) % FULL_ATTENTION_EVERY == 0 for layer in range(field["block_count"])]
        head_dim = field["attention.key_length"]
        config = DecoderConfig(
            hidden=field["embedding_length"], heads=field["attention.head_count"],
            kv_heads=field["attention.head_count_kv"], head_dim=head_dim, ffn=field["feed_forward_length"],
            vocab=len(fields["tokenizer.ggml.tokens"]), query_scale=1 / math.sqrt(head_dim),
            windows=tuple(0 if f else field["attention.sliding_window"] for f in full),
            rope_bases=tuple(field["rope.freq_base"] if f else LOCAL_ROPE_BASE for f in full),
            # The file stores the norm's epsilon in f32: 1e-6 is what was meant.
            epsilon=float(f"{field['attention.layer_norm_rms_epsilon']:.6g}"), activation="gelu_tanh",
            qk_norm=True, post_norms=True, embed_scale=math.sqrt(field["embedding_length"]))
        return config, field["context_length"]
    except KeyError as error:
        raise GgufError(f"{gguf.path}: the metadata lacks {error}") from error


def gguf_name(name):
    """model.layers.3.mlp.up_proj.weight -> blk.3.ffn_up.weight"""
    if name == "model.embed_tokens.weight":
        return "token_embd.weight"
    if name == "model.norm.weight":
        return "output_norm.weight"
    _, _, layer, part = name.removesuffix(".weight").split(".", 3)
    return f"blk.{layer}.{PARTS[part]}.weight"


def weight_blocks(gguf, progress):
    """The function that gives DecoderBuilder its weights, in the layout that the graph stores."""

    def blocks(name):
        source = gguf_name(name)
        if source not in gguf.tensors:
            raise GgufError(f"{gguf.path}: tensor {source} is missing")
        info = gguf.tensors[source]
        linear = name.endswith("_proj.weight")
        step = info.rows if linear else ROWS_AT_ONCE
        for first in range(0, info.rows, step):
            block = gguf.rows(source, first, min(step, info.rows - first))
            yield block.T if linear else block
            progress.add(block.size)

    return blocks


def convert(gguf, out, opset, dtype):
    """Writes every file of the model into `out`, which exists."""
    config, context = read_config(gguf)
    progress = Progress("weights", sum(info.rows * info.shape[-1] for info in gguf.tensors.values()))
    writer = GraphWriter(out / "model.onnx", opset, "gemma3")
    DecoderBuilder(writer, config, weight_blocks(gguf, progress), dtype).build()
    writer.save()
    progress.end()
    progress = Progress("tokenizer", config.vocab)
    write_json(out / "tokenizer.json", tokenizer_json(gguf.fields, progress.add), compact=True)
    write_json(out / "tokenizer_config.json", tokenizer_config(gguf.fields, context))
    write_json(out / "config.json", model_config(config, context, special_ids(gguf.fields), dtype))
    write_json(out / "generation_config.json", generation_config(gguf.fields))
    progress.end()


def add_terms(source, out):
    """The terms of use want a copy of themselves and a notice next to everything made from the weights."""
    (out / "NOTICE").write_text(NOTICE + "\n", encoding="utf-8")
    terms = source.with_name("GEMMA_TERMS.html")
    if terms.exists():
        shutil.copyfile(terms, out / terms.name)
    else:
        print(f"  {terms.name} is not next to the GGUF file: read the terms at the address below")


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path, help="directory to make; one that is there is replaced")
    parser.add_argument("--gguf", type=Path, default=os.environ.get("PLAIT_GEMMA_GGUF"),
                        help="the GGUF file (default: $PLAIT_GEMMA_GGUF)")
    parser.add_argument("--opset", type=int, choices=(18, 23), default=23)
    parser.add_argument("--dtype", choices=("f32", "bf16", "int4", "int8"), default="bf16",
                        help="how the weights are stored; int4 and int8: in blocks of 32, for MatMulNBits")
    options = parser.parse_args()
    if not options.gguf:
        parser.error("no GGUF file: give --gguf or set PLAIT_GEMMA_GGUF")
    options.gguf = Path(options.gguf)
    return options


def main():
    options = arguments()
    out, made = options.out, options.out.with_name(f".{options.out.name}.{os.getpid()}.part")
    try:
        gguf = GgufFile(options.gguf)
        made.mkdir(parents=True)
        print(f"{options.gguf.name} -> {out.name}: opset {options.opset}, {options.dtype}", flush=True)
        convert(gguf, made, options.opset, options.dtype)
        add_terms(options.gguf, made)
        (made / "CONVERSION").write_text(f"revision {REVISION} opset {options.opset} dtype {options.dtype}\n")
        shutil.rmtree(out, ignore_errors=True)
        made.rename(out)
    except (GgufError, OSError) as error:
        print(f"convert.py: {error}", file=sys.stderr)
        return 1
    finally:
        shutil.rmtree(made, ignore_errors=True)
    print(NOTICE)
    return 0


if __name__ == "__main__":
    sys.exit(main())
