#!/usr/bin/env python3
"""Measures plans: what `plait plan` predicts for steps of training on this machine, against steps that were run.

    ./run bench plan [--json F] [--ranks 2] [--work gpt2,gemma] [--rounds N] [--steps N] [--quick]
    ./run bench plan --figures docs

The machine is measured first, with one thread a rank. Plans are the planner's best three, data parallel, tensor parallel, and pipelines
of three schedules, each priced and then trained in a process of its own, round by round; figures are medians of step times without each
run's first. Wants an idle machine.

Bars: each prediction within 15 % of what was measured; pairs that are measured more than 5 % apart have the predicted order; the best
of the planner's three is at most 1.1 times as fast as its first.
"""

import argparse
import itertools
import json
import os
import statistics
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import machine
import workloads

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "bindings"))
import npy_files  # noqa: E402

ROOT = Path(__file__).resolve().parents[2]
PLAIT = os.environ.get("PLAIT", ROOT / "build/release/bindings/cli/plait")
TIME_LIMIT_S = 1800
OFF, APART, LOST = 0.15, 0.05, 1.1


@dataclass(frozen=True)
class Work:
    model: Path
    train: str
    batch: int
    seq: int


WORK = {"gpt2": Work(workloads.MODELS / "gpt2-8-layers", "full", 16, 128),
        "gemma": Work(workloads.MODELS / "gemma-3-270m", "lora:8", 8, 128)}


def call(*words):
    done = subprocess.run([str(word) for word in (PLAIT, *words)], capture_output=True, text=True, timeout=TIME_LIMIT_S, check=False)
    if done.returncode:
        raise SystemExit(f"plait {words[0]}: {(done.stderr.strip().splitlines() or ['no output'])[-1]}")
    return done.stdout


def flags_of(options):
    return [word for key, value in options.items() for one in (value if isinstance(value, list) else [value])
            for word in (f"--{key.replace('_', '-')}", one)]


def name_of(options):
    names = [str(options[key]) for key in ("mesh", "pipeline", "stages", "seats") if key in options]
    more = [f"{key}={options[key]}" for key in ("micro_batch", "zero", "recompute", "seeds") if key in options]
    return " ".join([*(names or ["one rank"]), *more])


def plans_of(work, options, machine_file):
    """By name: options of a trainer, predicted seconds, place among the planner's best or None."""
    words = ["plan", work.model, "--machine", machine_file, "--batch", work.batch, "--seq", work.seq, "--train", work.train,
             "--memory-bytes", "16G", "--json"]
    found = json.loads(call(*words, "--ranks", options.ranks))
    plans = {}
    for place, one in enumerate([found, *found["others"][:2]]):
        plans[name_of(one["options"])] = (one["options"], one["step_seconds"], place)
    given = [["--mesh", f"data={options.ranks}"], ["--mesh", f"tensor={options.ranks}"]]
    given += [["--mesh", f"pipeline={options.ranks}", "--pipeline", name] for name in ("gpipe", "1f1b", "zb-h1")]
    for some in given:
        done = subprocess.run([str(word) for word in (PLAIT, *words, *some)], capture_output=True, text=True, check=False)
        if done.returncode:  # heads that ranks cannot share
            print(f"{' '.join(some)}: {done.stderr.strip()}", file=sys.stderr)
            continue
        one = json.loads(done.stdout)
        plans.setdefault(name_of(one["options"]), (one["options"], one["step_seconds"], None))
    return plans


def step_seconds(work, plan, options, data):
    with tempfile.TemporaryDirectory() as folder:
        made = json.loads(call("train", work.model, "--data", data, "--out", Path(folder) / "run", "--json", "--threads", 1, "--steps",
                               options.steps + 1, "--option", "tokenizer=none", *flags_of(plan)))
    return statistics.median(made["timings"]["step_s"][1:])


def ids_of(work, folder):
    """A stream of token ids as .npy, since the models have no tokenizer in common."""
    path = Path(folder) / f"{work.model.name}.npy"
    ids = [(7919 * i + 13 * (i // 50)) % 4000 + 50 for i in range(work.seq * work.batch * 4)]
    npy_files.write(path, "<i4", (len(ids),), ids)
    return path


def report(name, plans, measured):
    rows = [{"plan": plan, "predicted_s": plans[plan][1], "measured_s": statistics.median(times), "place": plans[plan][2]}
            for plan, times in measured.items()]
    print(f"\n{name}")
    for row in sorted(rows, key=lambda one: one["measured_s"]):
        row["ratio"] = row["predicted_s"] / row["measured_s"]
        off = "  OFF" if abs(row["ratio"] - 1) > OFF else ""
        place = "" if row["place"] is None else f"  (planner: {row['place'] + 1})"
        print(f"  {row['measured_s']:8.3f} s, predicted {row['predicted_s']:8.3f} s, ratio {row['ratio']:.2f}{off}  {row['plan']}{place}")
    wrong = [(a["plan"], b["plan"]) for a, b in itertools.permutations(rows, 2)
             if a["measured_s"] * (1 + APART) < b["measured_s"] and a["predicted_s"] > b["predicted_s"]]
    print(f"  pairs in the wrong order: {len(wrong)}")
    own = [row for row in rows if row["place"] in (0, 1, 2)]
    first = next(row for row in own if row["place"] == 0)
    lost = first["measured_s"] / min(row["measured_s"] for row in own)
    overall = first["measured_s"] / min(row["measured_s"] for row in rows)
    print(f"  the planner's first takes {lost:.2f} times the best of its three, {overall:.2f} times the best of all")
    good = not wrong and lost <= LOST and all(abs(row["ratio"] - 1) <= OFF for row in rows)
    return {"rows": rows, "wrong_pairs": wrong, "lost": lost, "good": good}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path, help="write the figures there")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--work", type=lambda text: text.split(","), default=list(WORK))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=3, help="of a run, after its first")
    parser.add_argument("--figures", type=Path, help="instead draw the pictures of docs/planning.md into this folder")
    parser.add_argument("--quick", action="store_true", help="gemma, one round, one step")
    options = parser.parse_args()
    if options.figures:
        return subprocess.run([sys.executable, Path(__file__).with_name("plan_figures.py"), options.figures], check=False).returncode
    if options.quick:
        options.work, options.rounds, options.steps = ["gemma"], 1, 1
    if "gpt2" in options.work:
        import pipeline  # makes the model, with PyTorch's environment
        pipeline.make_model()
    facts, good, results = machine.describe([1, 2]), True, {}
    with tempfile.TemporaryDirectory() as folder:
        machine_file = Path(folder) / "machine.json"
        machine_file.write_text(call("machine", "--measure", "--ranks", options.ranks, "--threads", 1))
        for name in options.work:
            work = WORK[name]
            data, plans = ids_of(work, folder), plans_of(work, options, machine_file)
            measured = {plan: [] for plan in plans}
            for number in range(options.rounds):
                for plan, (words, _, _) in plans.items():
                    print(f"{name}: {plan}, round {number + 1} of {options.rounds}", file=sys.stderr, flush=True)
                    measured[plan].append(step_seconds(work, words, options, data))
            results[name] = report(f"{name}: {work.train}, {work.batch} samples of {work.seq} tokens", plans, measured)
            good &= results[name]["good"]
    print(f"\n{facts['cpu']}, {facts['cpus']} processors; others used {facts['busy_before']:.0%} of them before")
    if options.json:
        options.json.write_text(json.dumps({"machine": facts, **results}, indent=1) + "\n")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
