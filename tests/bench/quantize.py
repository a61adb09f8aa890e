#!/usr/bin/env python3
"""Measures what weights of few bits cost: perplexity by bits and method of rounding.

    ./run bench quantize [--json F] [--svg F] [--model DIR] [--bits 2,3,4,5,6,8] [--tokens N] [--quick]

Each row is one `plait quantize`, which evaluates the model before and after on a page of the documentation; another two pages are
the calibration. Prints a table, and draws docs/quantize.svg from it (--svg). The figures do not depend on the machine; the seconds do.
"""

import argparse
import json
import os
import subprocess
import tempfile
from pathlib import Path

import machine
import workloads
from chart import Axis, Series, chart

ROOT = Path(__file__).resolve().parents[2]
PLAIT = os.environ.get("PLAIT", ROOT / "build/release/bindings/cli/plait")
CALIBRATION, HELD_OUT = ("docs/training.md", "docs/sharding.md"), ("docs/pipelines.md",)
METHODS = {"nearest": [], "nearest, asymmetric": ["--asymmetric"], "GPTQ": ["calibrated"],
           "GPTQ, asymmetric": ["calibrated", "--asymmetric"]}


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path, help="write the figures there")
    parser.add_argument("--svg", type=Path, help="draw them there")
    parser.add_argument("--model", type=Path, default=workloads.MODELS / "gemma-3-270m-f32")
    parser.add_argument("--bits", type=lambda text: [int(one) for one in text.split(",")], default=[2, 3, 4, 5, 6, 8])
    parser.add_argument("--tokens", type=int, default=8192, help="of the calibration")
    parser.add_argument("--quick", action="store_true", help="4 bits to nearest")
    options = parser.parse_args()
    if options.quick:
        options.bits = [4]
    return options


def text_of(folder, name, pages):
    path = folder / f"{name}.txt"
    path.write_text("".join((ROOT / page).read_text(encoding="utf-8") for page in pages), encoding="utf-8")
    return path


def quantised(options, folder, bits, flags):
    """What `plait quantize --json` returns."""
    words = [PLAIT, "quantize", options.model, "--bits", bits, "--out", folder / "out", "--json", "--eval-data", folder / "held-out.txt"]
    words += [flag for flag in flags if flag != "calibrated"]
    if "calibrated" in flags:
        words += ["--calibration", folder / "calibration.txt", "--calibration-tokens", options.tokens]
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True, timeout=7200)
    if done.returncode != 0:
        raise SystemExit(f"plait quantize: {done.stderr.strip()}")
    for path in (folder / "out").iterdir():
        path.unlink()
    (folder / "out").rmdir()
    return json.loads(done.stdout)


def table(result):
    lines = ["| Bits | " + " | ".join(result["methods"]) + " | File |", "| --- |" + " --- |" * (len(result["methods"]) + 1)]
    for bits in result["bits"]:
        rows = [result["rows"][f"{bits}, {method}"] for method in result["methods"]]
        sizes = sorted({round(sum(row["files"].values()) / 1e6) for row in rows})
        lines.append(f"| {bits} | " + " | ".join(f"{row['perplexity_after']:.2f}" for row in rows) +
                     f" | {' to '.join(str(size) for size in (sizes[0], sizes[-1])) if len(sizes) > 1 else sizes[0]} MB |")
    return "\n".join([f"As it is: perplexity {result['before']:.2f}", *lines])


def picture(result):
    """Perplexity over that of the unrounded model, on a logarithmic axis, by bits."""
    top, series = 10.0, []
    for method in result["methods"]:
        ratios = {bits: result["rows"][f"{bits}, {method}"]["perplexity_after"] / result["before"] for bits in result["bits"]}
        outside = [bits for bits, ratio in ratios.items() if ratio > top]
        name = method + (f" (over {top:g} at {', '.join(map(str, outside))} bits)" if outside else "")
        series.append(Series(name, [(bits, ratio) for bits, ratio in ratios.items() if ratio <= top]))
    return chart(f"Perplexity, times that of unrounded weights: {result['model']}",
                 Axis("bits", low=min(result["bits"]) - 0.5, high=max(result["bits"]) + 0.5),
                 Axis("times the unrounded model's", log=True, low=0.97, high=top), series, legend=(330, 60))


def main():
    options = arguments()
    methods = dict(list(METHODS.items())[:1]) if options.quick else METHODS
    result = {"machine": machine.describe([os.cpu_count()]), "model": options.model.name, "tokens": options.tokens, "bits": options.bits,
              "methods": list(methods), "rows": {}}
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        text_of(folder, "calibration", CALIBRATION)
        text_of(folder, "held-out", HELD_OUT)
        for bits in options.bits:
            for method, flags in methods.items():
                row = result["rows"][f"{bits}, {method}"] = quantised(options, folder, bits, flags)
                result["before"] = row["perplexity_before"]
                print(f"{bits} bits, {method}: {row['perplexity_after']:.2f}", flush=True)
    print(table(result))
    if options.json:
        options.json.write_text(json.dumps(result, indent=1) + "\n")
    if options.svg:
        options.svg.write_text(picture(result))


if __name__ == "__main__":
    main()
