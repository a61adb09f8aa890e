#!/usr/bin/env python3
"""Measures how long reading a model of 7 billion parameters takes, and how much memory, before weights are touched.

    ./run bench import [--json F] [--rounds N]

The model has the shape of Llama 2 7B, in bf16. Its weights are a hole in a file: 13.5 GB that read as zeros and take no
room. `plait inspect` reads it, runs every pass of generation and says what it recognised, in a process of its own.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1] / "samples" / "gemma3"))
from decoder import DecoderBuilder, DecoderConfig  # noqa: E402
from onnx_writer import GraphWriter  # noqa: E402

LAYERS = 32
SHAPE = DecoderConfig(hidden=4096, heads=32, kv_heads=32, head_dim=128, ffn=11008, vocab=32000, windows=(0,) * LAYERS,
                      rope_bases=(10000.0,) * LAYERS, query_scale=128 ** -0.5, epsilon=1e-5, tied=False)
# What a reader of such a file may take.
MOST_SECONDS, MOST_MIB = 3.0, 300


def make_model(folder, opset):
    folder.mkdir(parents=True)
    writer = GraphWriter(folder / "model.onnx", opset, "llama")
    DecoderBuilder(writer, SHAPE, lambda name: None, "bf16").build()
    writer.save()
    return writer.written


def inspect(program, folder):
    """Seconds, MiB and the answer of one run."""
    with tempfile.TemporaryFile() as answer:
        start = time.monotonic()
        child = subprocess.Popen([program, "inspect", folder, "--json"], stdout=answer)
        _, status, usage = os.wait4(child.pid, 0)
        seconds = time.monotonic() - start
        child.returncode = os.waitstatus_to_exitcode(status)
        if child.returncode:
            raise SystemExit(f"plait inspect {folder} ended with status {child.returncode}")
        answer.seek(0)
        return seconds, usage.ru_maxrss / 1024, json.load(answer)


def measure(program, folder, opset, rounds):
    written = make_model(folder, opset)
    runs = [inspect(program, folder) for _ in range(rounds + 1)][1:]
    info = runs[0][2]
    if not info["recognised"] or info["layers"] != LAYERS:
        raise SystemExit(f"opset {opset}: the decoder was not recognised: {info.get('why_not')}")
    return {"opset": opset, "nodes": info["nodes"], "weights_gb": round(written / 1e9, 2),
            "seconds": [run[0] for run in runs], "peak_mib": [run[1] for run in runs]}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path, help="write the figures of every round there")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    program = os.environ["PLAIT"]
    print("form       nodes   weights   read and recognised   peak memory")
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for opset in (18, 23):
            row = measure(program, Path(folder) / str(opset), opset, options.rounds)
            rows.append(row)
            seconds, mib = statistics.median(row["seconds"]), statistics.median(row["peak_mib"])
            print(f"opset {opset}  {row['nodes']:6}  {row['weights_gb']:5} GB  {seconds:17.2f} s  {mib:8.0f} MiB")
            if seconds > MOST_SECONDS or mib > MOST_MIB:
                print(f"           beyond the {MOST_SECONDS:g} s or the {MOST_MIB} MiB that it may take")
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
