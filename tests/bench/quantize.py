#!/usr/bin/env python3
"""Measures what weights of few bits cost: perplexity by bits and method of rounding.

    ./run bench quantize [--json F] [--svg F] [--model DIR] [--bits 2,3,4,5,6,8] [--tokens N] [--quick]

Each row is one `plait quantize`, which evaluates the model before and after on a page of the documentation; another two pages are
the calibration. Prints a table, and draws docs/quantize.svg from it (--svg). The figures do not depend on the machine; the seconds do.
"""

import argparse
import json
import math
import os
import subprocess
import tempfile
from pathlib import Path

import machine
import workloads

ROOT = Path(__file__).resolve().parents[2]
PLAIT = os.environ.get("PLAIT", ROOT / "build/release/bindings/cli/plait")
CALIBRATION, HELD_OUT = ("docs/training.md", "docs/sharding.md"), ("docs/pipelines.md",)
METHODS = {"nearest": [], "nearest, asymmetric": ["--asymmetric"], "GPTQ": ["calibrated"],
           "GPTQ, asymmetric": ["calibrated", "--asymmetric"]}
COLOURS = ("#2563eb", "#6ea8fe", "#d9480f", "#ff9f5a")
WIDTH, HEIGHT, LEFT, TOP, RIGHT, BOTTOM = 760, 420, 70, 60, 740, 360


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
    ratios = {key: row["perplexity_after"] / result["before"] for key, row in result["rows"].items()}
    top = 10.0
    bits = result["bits"]

    def x(one): return LEFT + (RIGHT - LEFT) * (0.5 + bits.index(one)) / len(bits)
    def y(ratio): return BOTTOM - (BOTTOM - TOP) * math.log(max(ratio, 1) / 0.97) / math.log(top / 0.97)

    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" role="img">',
           f"<title>Perplexity by bits and method: {result['model']}</title>",
           '<style>text { font: 12px system-ui, "DejaVu Sans", sans-serif; fill: #6b7280; } .title { font-size: 16px; fill: #1f2430; }'
           ' .middle { text-anchor: middle; } .end { text-anchor: end; } .grid { stroke: #e6e8ec; } .curve { fill: none; stroke-width: 2; }'
           '</style>', f'<rect width="{WIDTH}" height="{HEIGHT}" rx="8" fill="#ffffff"/>',
           f'<text class="title" x="{LEFT}" y="24">Perplexity, times that of unrounded weights: {result["model"]}</text>']
    for mark in (1, 1.1, 1.25, 1.5, 2, 3, 5, 10):
        out.append(f'<line class="grid" x1="{LEFT}" x2="{RIGHT}" y1="{y(mark):.1f}" y2="{y(mark):.1f}"/>'
                   f'<text class="end" x="{LEFT - 8}" y="{y(mark) + 4:.1f}">{mark:g}</text>')
    out += [f'<text class="middle" x="{x(one):.1f}" y="{BOTTOM + 22}">{one} bits</text>' for one in bits]
    for index, (method, colour) in enumerate(zip(result["methods"], COLOURS)):
        drawn = [(one, ratios[f"{one}, {method}"]) for one in bits]
        inside = [(one, ratio) for one, ratio in drawn if ratio <= top]
        points = " ".join(f"{x(one):.1f},{y(ratio):.1f}" for one, ratio in inside)
        out.append(f'<polyline class="curve" stroke="{colour}" points="{points}"/>')
        out += [f'<circle cx="{x(one):.1f}" cy="{y(ratio):.1f}" r="3.5" fill="{colour}"/>' for one, ratio in inside]
        outside = [one for one, ratio in drawn if ratio > top]
        label = method + (f" (over {top:g} at {', '.join(map(str, outside))} bits)" if outside else "")
        out.append(f'<rect x="{LEFT + 250}" y="{TOP + 4 + 20 * index}" width="12" height="12" fill="{colour}"/>'
                   f'<text x="{LEFT + 268}" y="{TOP + 14 + 20 * index}">{label}</text>')
    return "\n".join([*out, "</svg>"]) + "\n"


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
