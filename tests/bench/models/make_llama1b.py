#!/usr/bin/env python3
"""Makes a Llama-shaped model of 1.24 billion random weights (2.5 GB in bf16: beyond any cache), as ONNX and GGUF.

    make_llama1b.py [--dtypes bf16,f32] [--models DIR]

Writes llama-1b-bf16/, llama-1b-f32/ and llama-1b-{bf16,f32}.gguf. Every weight is a bf16 number, so that all of them
hold the same model. --dtypes int4 and int8 write llama-1b-int4/ and llama-1b-int8/: the same in blocks of 32; their GGUF
files are llama.cpp's affair (quantise_gguf.py). Needs numpy, onnx and gguf. What is there already is not made again.
"""

import argparse
import json
import math
import shutil
import sys
import time
import zlib
from pathlib import Path

import numpy as np

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[2] / "samples" / "gemma3"))
from decoder import DecoderBuilder, DecoderConfig  # noqa: E402
from onnx_to_gguf import write_gguf  # noqa: E402
from onnx_writer import GraphWriter, narrow, widen  # noqa: E402
from quantise import BITS  # noqa: E402

LAYERS = 16
CONFIG = DecoderConfig(hidden=2048, heads=32, kv_heads=8, head_dim=64, ffn=8192, vocab=128256,
                       windows=(0,) * LAYERS, rope_bases=(500000.0,) * LAYERS, query_scale=1 / math.sqrt(64),
                       epsilon=1e-5)
CONTEXT = 8192
# The spread that such models are initialised with: activations stay near one through all layers.
SPREAD = 0.02
# 8192 rows of 2048 f32 are 67 MB.
ROWS_AT_ONCE = 8192


def shape_of(name):
    """Shape as the graph stores the weight: [in, out] for a linear layer."""
    config = CONFIG
    wide, narrow_ = config.heads * config.head_dim, config.kv_heads * config.head_dim
    shapes = {"embed_tokens": (config.vocab, config.hidden), "q_proj": (config.hidden, wide),
              "k_proj": (config.hidden, narrow_), "v_proj": (config.hidden, narrow_),
              "o_proj": (wide, config.hidden), "gate_proj": (config.hidden, config.ffn),
              "up_proj": (config.hidden, config.ffn), "down_proj": (config.ffn, config.hidden)}
    return shapes.get(name.split(".")[-2], (config.hidden,))


def bf16_rounded(block):
    return widen(narrow(block, "bf16"))


def blocks(name):
    """The weight's f32 blocks: the same numbers whenever they are asked for."""
    shape = shape_of(name)
    rng = np.random.default_rng([1, zlib.crc32(name.encode())])
    if len(shape) == 1:
        yield bf16_rounded(1 + SPREAD * rng.standard_normal(shape, np.float32))
        return
    for first in range(0, shape[0], ROWS_AT_ONCE):
        count = min(ROWS_AT_ONCE, shape[0] - first)
        yield bf16_rounded(SPREAD * rng.standard_normal((count, shape[1]), np.float32))


def reported_blocks(name):
    if ".self_attn.q_proj" in name:
        print(f"  layer {int(name.split('.')[2]) + 1} of {LAYERS}", flush=True)
    yield from blocks(name)


def hf_config():
    config = CONFIG
    return {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": config.vocab,
            "hidden_size": config.hidden, "intermediate_size": config.ffn, "num_hidden_layers": config.layers,
            "num_attention_heads": config.heads, "num_key_value_heads": config.kv_heads,
            "head_dim": config.head_dim, "max_position_embeddings": CONTEXT, "rms_norm_eps": config.epsilon,
            "rope_theta": config.rope_bases[0], "hidden_act": "silu", "attention_bias": False, "mlp_bias": False,
            "tie_word_embeddings": True, "bos_token_id": 128000, "eos_token_id": 128001}


def make_onnx(out, dtype):
    if (out / "model.onnx").exists():
        return
    part = out.with_name(f".{out.name}.part")
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir(parents=True)
    start = time.monotonic()
    print(f"{out.name}: writing", flush=True)
    writer = GraphWriter(part / "model.onnx", 23, "llama")
    DecoderBuilder(writer, CONFIG, reported_blocks, dtype).build()
    writer.save()
    (part / "config.json").write_text(json.dumps(hf_config(), indent=2) + "\n")
    part.rename(out)
    print(f"{out.name}: {writer.written / 1e9:.2f} GB in {time.monotonic() - start:.0f} s", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", type=Path, default=HERE.parents[2] / "models")
    parser.add_argument("--dtypes", default="bf16,f32")
    parser.add_argument("--no-gguf", action="store_true", help="only the ONNX files")
    options = parser.parse_args()
    for dtype in options.dtypes.split(","):
        out = options.models / f"llama-1b-{dtype}"
        make_onnx(out, dtype)
        if not options.no_gguf and dtype not in BITS:
            write_gguf(out, out.with_name(f"{out.name}.gguf"))
    return 0


if __name__ == "__main__":
    sys.exit(main())
