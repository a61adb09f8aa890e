#!/usr/bin/env python3
"""Draws the pictures of docs/planning.md.

    plan_figures.py OUT [--only parity,links,bubble,memory,front,seconds]

Called by `./run bench plan --figures OUT`. Figures are simulations: only the planner's seconds depend on the machine.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from chart import Axis, Series, chart

BUILT = Path(__file__).resolve().parents[2] / "build/release"
PLAIT = os.environ.get("PLAIT", BUILT / "bindings/cli/plait")
TEST = BUILT / "tests/plan_test"
LLAMA = {"8B": "layers=32,hidden=4096,heads=32,kv_heads=8,feed_forward=14336",
         "70B": "layers=80,hidden=8192,heads=64,kv_heads=8,feed_forward=28672",
         "405B": "layers=126,hidden=16384,heads=128,kv_heads=8,feed_forward=53248"}
SCHEDULES = ("gpipe", "1f1b", "interleaved:2", "zb-h1", "zb-v")
STRAIGHT = ["--mesh", "pipeline=8", "--micro-batch", 4096, "--recompute", "off", "--zero", 0, "--memory-bytes", "1000G"]
LINKS = {"a": 0.1, "b": 1, "c": 5, "d": 10, "e": 50}  # milliseconds


def plan(*words):
    done = subprocess.run([str(word) for word in (PLAIT, "plan", "--json", *words)], capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(done.stderr.strip())
    return json.loads(done.stdout)


def straight(schedule, batch):
    """Llama 8B on eight stages of a rank each, or two with schedules that have two stages a rank."""
    seats = ["--seats", ":".join("1" * 8)] if schedule == "1f1b" else []
    return plan(*llama("8B", 4096), *STRAIGHT, *seats, "--batch", batch, "--pipeline", schedule)


def llama(name, sequence=8192):
    return ["--decoder", f"family=llama,{LLAMA[name]},vocabulary=128256,sequence={sequence}", "--machine", "h100"]


def oracles():
    """Published and predicted seconds of the tests' rows, by suite and name."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows.json"
        subprocess.run([TEST, "--gtest_filter=Megatron.Steps*:Layouts.Fitted*:FasterTransformer.Requests*:ShapedLinks.*:ManyGpus.*",
                        f"--gtest_output=json:{path}"], check=True, stdout=subprocess.DEVNULL)
        suites = json.loads(path.read_text())["testsuites"]
    known = {"name", "file", "line", "status", "result", "timestamp", "time", "classname"}
    return {suite["name"]: {key: tuple(map(float, value.split())) for test in suite["testsuite"] for key, value in test.items()
                            if key not in known} for suite in suites}


def parity():
    titles = {"Megatron": "Megatron-LM, 1.7B to 1008B on 8 to 3,072 A100",
              "Layouts": "Hagemann et al., Llama 13B to 65B on A100 (fitted)", "FasterTransformer": "FasterTransformer's requests",
              "ShapedLinks": "DS3Lab, pipelines over shaped links", "ManyGpus": "DS3Lab, meshes of 64 V100 (nothing fitted)"}
    series = [Series(f"{titles[suite]}: {len(rows)}", list(rows.values()), True, list(rows)) for suite, rows in oracles().items()]
    return chart("Predicted against published seconds", Axis("published, seconds", True), Axis("predicted, seconds", True), series, True)


def links():
    rows, series = oracles()["ShapedLinks"], []
    for name in ("xl fp16 12 stages", "xl fp16 8 stages b96", "small fp16 3 stages"):
        mine = [(LINKS[key], rows[f"{name} {key}"]) for key in LINKS]
        series.append(Series(f"{name}: predicted", [(at, predicted) for at, (_, predicted) in mine]))
        series.append(Series(f"{name}: measured", [(at, measured) for at, (measured, _) in mine], True))
    return chart("A step over slower links (0.1 ms and 10 Gb/s to 50 ms and 1 Gb/s)", Axis("latency of the links, milliseconds", True),
                 Axis("seconds", low=0, high=20), series)


def bubble():
    series = []
    for name in SCHEDULES:
        points = []
        for batch in (8, 16, 32, 64, 128):
            found = straight(name, batch)
            points.append((batch, 100 * found["bubble"]))
        series.append(Series(name, points))
    return chart("Idle pipeline: Llama 8B on 8 H100 as stages", Axis("micro-batches", True), Axis("% of the ranks' time"), series,
                 legend=(620, 70))


def memory():
    series = []
    for name in SCHEDULES:
        found = straight(name, 32)
        series.append(Series(name, [(rank["pipeline"], rank["total"] / 1e9) for rank in found["memory"]]))
    return chart("Memory by pipeline rank: Llama 8B on 8 H100, 32 micro-batches", Axis("pipeline rank"), Axis("GB"), series,
                 legend=(300, 138))


# Of the makers (Dubey et al. 2024, table 4): 405B on 8,192 H100 by tensor 8, pipeline 16; smaller ones are not described.
FRONTS = (("8B", 8, 128), ("70B", 64, 128), ("405B", 1024, 1024))


def front():
    series = []
    for name, ranks, batch in FRONTS:
        found = plan(*llama(name), "--ranks", ranks, "--batch", batch)
        rows = [found, *found["others"]]
        best = found["step_seconds"]
        rows = [row for row in rows if row["step_seconds"] < 1.6 * best]
        words = [", ".join(f"{key} {value}" for key, value in row["options"].items() if key not in ("batch", "seq", "stages"))
                 for row in rows]
        mesh, share = found["options"].get("mesh", "one rank"), 100 * found["mfu"]
        series.append(Series(f"{name} on {ranks}: {mesh}, {best:.1f} s, {share:.0f} % of the peak",
                             [(row["step_seconds"] / best, row["most_bytes"] / 1e9) for row in rows], True, words))
    return chart("Plans of Llama 3 on H100: time against memory", Axis("time of a step, times the best", low=0.95),
                 Axis("GB on the rank that takes most", low=0, high=85), series, legend=(92, 300))


def seconds():
    series = []
    for name, counts in (("8B", (8, 16, 32, 64)), ("70B", (64, 128, 256)), ("405B", (1024, 2048))):
        points = []
        for ranks in counts:
            begin = time.monotonic()
            plan(*llama(name), "--ranks", ranks, "--batch", 2 * ranks)
            points.append((ranks, time.monotonic() - begin))
            print(f"{name} on {ranks}: {points[-1][1]:.1f} s", flush=True)
        series.append(Series(f"Llama {name}", points))
    return chart(f"The planner's own time, {len(os.sched_getaffinity(0))} processors", Axis("ranks", True), Axis("seconds"), series)


FIGURES = {"parity": parity, "links": links, "bubble": bubble, "memory": memory, "front": front, "seconds": seconds}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--only", type=lambda text: text.split(","), default=list(FIGURES))
    options = parser.parse_args()
    for name in options.only:
        path = options.out / f"planning_{name}.svg"
        path.write_text(FIGURES[name](), encoding="utf-8")
        print(path, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
