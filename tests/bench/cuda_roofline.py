#!/usr/bin/env python3
"""What one token takes on GPUs at best, and what is to be expected of Plait's kernels: predictions, for docs/cuda.md.

usage: cuda_roofline.py BUILD [--write]

The number of launches is that of the programs that BUILD (build/release) makes of fixtures with a model's architecture, layer by layer;
bytes are those of the model's shapes in the kernels' layouts (kernels/cuda/kernels/linear.h); the share of issue slots that a kernel
needs while memory delivers its weights is that of kernels/cuda/bars.json, from the machine code. --write puts the tables into
docs/cuda.md; without it they are printed, and the exit status is 1 if those of docs/cuda.md are others.
"""
import collections
import functools
import json
import os
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
BEGIN, END = "<!-- cuda_roofline.py: begin -->", "<!-- cuda_roofline.py: end -->"

# Bytes a second of memory on paper, and the share of it that copies reach.
CHIPS = {"H100": 3.35e12, "H200": 4.8e12}
REACHED = 0.9
GAP_S = 1.5e-6  # between the kernels of a graph
WAY_S = 0.5e-6  # of a token's last words to another device: what a sum takes between the kernel that makes them and the one that adds
CONTEXT = 1024  # tokens in the cache, in bf16

# Shapes: h hidden, l layers, r query heads, g key heads, d head size, f feed-forward, v vocabulary; `gates` of
# the MLP. `fixture`: of that architecture, with `layers` layers.
Model = collections.namedtuple("Model", "name kernel bits h l r g d f v gates fixture layers")
MODELS = (
    Model("Gemma 3 270M bf16", "linear_bf16_rounded", 16, 640, 18, 4, 1, 256, 2048, 262144, 2, "gemma3-standard23", 3),
    Model("Llama 3.2 1B bf16", "linear_bf16_rounded", 16, 2048, 16, 32, 8, 64, 8192, 128256, 2, "llama-standard23", 2),
    Model("Llama 3.1 8B bf16", "linear_bf16_rounded", 16, 4096, 32, 32, 8, 128, 14336, 128256, 2, "llama-standard23", 2),
    Model("Llama 3.1 8B int4, blocks of 32", "linear_int4", 4, 4096, 32, 32, 8, 128, 14336, 128256, 2, "llama-standard23", 2),
    Model("GPT-J 6B bf16", "linear_bf16_rounded", 16, 4096, 28, 16, 16, 256, 16384, 50400, 1, "zoo/gptj/dynamo18", 2),
)

# Launches of an op where they are several: of Linears x as columns and three weights.
LAUNCHES = {"plait.Linear": 2, "plait.Linears": 4, "plait.GatedLinear": 3, "plait.PagedAttention": 2, "Concat": 2, "Split": 2}

# What others have published for one sequence: model, machine, figure, source.
PEERS = (
    ("Llama 3.2 1B bf16", "H100", "78 % of bandwidth; vLLM, SGLang at most 50 %",
     "[Hazy Research](https://hazyresearch.stanford.edu/blog/2025-05-27-no-bubbles)"),
    ("Llama 2 7B bf16", "A100 80 GB, 330 W", "104.9 tokens/s (1,397 GB/s); on 2, 4, 8 of them 168.8, 254.0, 328.4",
     "[gpt-fast](https://github.com/pytorch-labs/gpt-fast)"),
    ("Llama 2 7B int4, blocks of 32", "A100 80 GB, 330 W", "196.8 tokens/s (863 GB/s)",
     "[gpt-fast](https://github.com/pytorch-labs/gpt-fast)"),
)


@functools.cache
def launches(build, model, mesh=""):
    """(of each layer, of the rest) in one step, without the sums of ranks."""
    steps = 4
    words = [f"{build}/bindings/cli/plait", "generate", f"{build}/tests/fixtures/{model.fixture}", "--ids", "5", "--max-tokens", str(steps),
             "--ignore-eos", "--profile", "--option", "device=emulated", "--option", "cache_bytes=4M"]
    words += ["--mesh", mesh] if mesh else []
    environment = {**os.environ, "PLAIT_EMULATE_DEVICES": "2", "PLAIT_EMULATE_BYTES": str(1 << 31)}
    profile = subprocess.run(words, capture_output=True, text=True, check=True, env=environment).stderr
    layer, rest = 0, 0
    for count, op in re.findall(r"ms +(\d+) +(\S+) cuda$", profile, re.M):
        in_step, each = int(count) // steps, LAUNCHES.get(op, 1)
        layer += in_step // model.layers * each
        rest += in_step % model.layers * each
    return layer, rest


def weight_bytes(model, n, k):
    """Of a Linear, packed: strips of 16 rows and units of 32; scales are f32."""
    n, k = -(-n // 16) * 16, -(-k // 32) * 32
    return n * k * model.bits // 8 + (n * (k // 32) * 4 if model.bits < 16 else 0)


def step_bytes(model):
    """(weights of all layers and the head, keys and values of the context)."""
    queries, keys = model.r * model.d, model.g * model.d
    layer = weight_bytes(model, queries + 2 * keys, model.h) + weight_bytes(model, model.h, queries)
    layer += weight_bytes(model, model.gates * model.f, model.h) + weight_bytes(model, model.h, model.f)
    return model.l * layer + weight_bytes(model, model.v, model.h), model.l * CONTEXT * 2 * keys * 2


def seconds(build, model, chip, cards, bars):
    """(at the memory's bandwidth on paper, expected)."""
    weights, cache = step_bytes(model)
    share = max(1.0, bars[model.kernel]["sm_90a"]["issue_percent"] / 100)
    layer, rest = launches(build, model, "tensor=2" if cards > 1 else "")
    count = model.l * layer + rest
    best = (weights + cache) / cards / CHIPS[chip]
    read = (weights * share + cache) / cards / (CHIPS[chip] * REACHED)
    # Two a layer, which the norms make, and that of the embedding, with a kernel of its own.
    sums = 2 * model.l * WAY_S + WAY_S + GAP_S if cards > 1 else 0
    return best, read + count * GAP_S + sums


def tables(build):
    bars = json.loads((ROOT / "kernels/cuda/bars.json").read_text())["kernels"]
    columns = [("H100", 1), ("H200", 1), ("H200", 2), ("H200", 4), ("H200", 8)]
    out = ["| model | GB a token | launches | " + " | ".join(f"{cards} {chip}" for chip, cards in columns) + " |",
           "|---|---|---|" + "---|" * len(columns)]
    for model in MODELS:
        layer, rest = launches(build, model)
        cells = []
        for chip, cards in columns:
            best, expected = seconds(build, model, chip, cards, bars)
            cells.append(f"{1 / expected:,.0f} ({best / expected * 100:.0f} %)")
        out.append(f"| {model.name} | {sum(step_bytes(model)) / 1e9:.2f} | {model.l} x {layer} + {rest} | {' | '.join(cells)} |")
    out += ["", "| published | machine | figure | source |", "|---|---|---|---|"]
    out += ["| " + " | ".join(row) + " |" for row in PEERS]
    return "\n".join(out)


def main():
    made = f"{BEGIN}\n{tables(sys.argv[1])}\n{END}"
    path = ROOT / "docs/cuda.md"
    text = path.read_text()
    if "--write" in sys.argv:
        path.write_text(re.sub(re.escape(BEGIN) + ".*?" + re.escape(END), lambda _: made, text, flags=re.S))
        return 0
    print(made)
    if made in text:
        return 0
    print("docs/cuda.md has other tables; if these are right: --write", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
