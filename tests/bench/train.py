#!/usr/bin/env python3
"""Measures training side by side: Plait and PyTorch, eager and compiled, on the same weights and the same batch.

    ./run bench train [--json F] [--work gpt2-f32,gemma-f32,gemma-bf16] [--engines ...] [--threads N] [--rounds N] [--quick]

Each engine runs in a child process of its own, one after another, round by round; figures are medians. Missing models and
PyTorch's environment are made first (some minutes and 7 GB the first time). Wants an idle machine.
"""

import argparse
import array
import json
import os
import random
import signal
import statistics
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import machine
import workloads

HERE = Path(__file__).resolve().parent
TIME_LIMIT_S = 3600
TORCH_PYTHON = workloads.PEERS / "torch" / "bin" / "python"
# Engine -> (its Python, its script, what else its job specifies, steps before those that count).
ENGINES = {
    "plait": (Path(sys.executable), "plait_train_runner.py", {}, 1),
    "torch": (TORCH_PYTHON, "peers/peer_torch.py", {"compiled": False}, 1),
    "torch compiled": (TORCH_PYTHON, "peers/peer_torch.py", {"compiled": True}, 2),
}
# The first losses are of one model and one batch: so far apart may rounding take them, as a share.
AGREEMENT = {"f32": 1e-4, "bf16": 3e-2}
NAME_WIDTH, COLUMN_WIDTH = 34, 22


@dataclass(frozen=True)
class Work:
    """What is trained, on how much. `trunk` and `head` count weights that each token is multiplied by; `width` is what all
    heads of all layers have together."""

    name: str
    dtype: str
    vocabulary: int
    batch: int
    trunk: int
    head: int
    width: int
    lora: int = 0
    seq: int = 256

    @property
    def flops(self):
        """Of a step: products of weights forwards, for x backwards, and for the weights where these are trained; attention's
        two products over half of the sequence, five backwards."""
        weights = (self.trunk + self.head) * (4 if self.lora else 6)
        return self.batch * self.seq * (weights + 7 * self.width * self.seq)

    @property
    def folder(self):
        if self.name == "gemma":
            return workloads.ALL["gemma"].folder(self.dtype)
        return workloads.MODELS / self.name


GEMMA = {"vocabulary": 262144, "batch": 4, "trunk": 100_270_080, "head": 167_772_160, "width": 18 * 1024, "lora": 16}
ALL = {
    "gpt2-f32": Work("gpt2-30m", "f32", 16384, 8, trunk=18_874_368, head=8_388_608, width=6 * 512),
    "gemma-f32": Work("gemma", "f32", **GEMMA),
    "gemma-bf16": Work("gemma", "bf16", **GEMMA),
}


def arguments():
    def items(text):
        return text.split(",")

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path, help="write the figures of every round there")
    parser.add_argument("--work", type=items, default=list(ALL))
    parser.add_argument("--engines", type=items, default=list(ENGINES))
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--steps", type=int, default=4, help="steps that count in each round")
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--micro-batch", type=int, default=0, help="tokens that Plait computes at once; 0: its default")
    parser.add_argument("--quick", action="store_true", help="one round of two steps")
    options = parser.parse_args()
    for name, known in (("engines", ENGINES), ("work", ALL)):
        unknown = set(getattr(options, name)) - set(known)
        if unknown:
            parser.error(f"--{name}: unknown {', '.join(sorted(unknown))}; there are {', '.join(known)}")
    options.rounds = options.rounds or (1 if options.quick else 5)
    options.steps = 2 if options.quick else options.steps
    return options


def prepare(work):
    workloads.run(HERE / "peers/setup_peers.sh", "--torch")
    if work.name == "gemma":
        workloads.run(workloads.ROOT / "samples" / "gemma3" / "fetch.sh", "--dtype", work.dtype)
    else:
        workloads.run(TORCH_PYTHON, HERE / "models/make_gpt2_30m.py", work.folder)


def write_batch(work):
    """Random ids as an int32 array [batch, seq + 1] of NumPy's, seen whole in every step, so that order does not matter."""
    path = workloads.MODELS / f"{work.name}-batch.npy"
    ids = array.array("i", random.Random(1).choices(range(work.vocabulary), k=work.batch * (work.seq + 1)))
    header = str({"descr": "<i4", "fortran_order": False, "shape": (work.batch, work.seq + 1)})
    header = header.ljust(128 - 11) + "\n"
    path.write_bytes(b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header.encode() + ids.tobytes())
    return path


def run_child(engine, job):
    """One engine's result, or {"error": why there is none}."""
    python, script, more, warm_up = ENGINES[engine]
    job = {**job, **more, "steps": job["steps"] + warm_up}
    environment = {**os.environ, "OMP_NUM_THREADS": str(job["threads"])}
    try:
        made = subprocess.run([python, HERE / script, json.dumps(job)], capture_output=True, text=True,
                              timeout=TIME_LIMIT_S, env=environment)
    except subprocess.TimeoutExpired:
        return {"error": f"no answer in {TIME_LIMIT_S} s"}
    if made.returncode < 0:
        return {"error": f"killed by {signal.Signals(-made.returncode).name}"}
    try:
        result = json.loads(made.stdout.splitlines()[-1])
    except (IndexError, ValueError):
        return {"error": (made.stderr.strip().splitlines() or ["no output"])[-1]}
    if "seconds" in result:
        result["step_s"] = statistics.median(result["seconds"][warm_up:])
    return result


def compare(name, options, not_run):
    work = ALL[name]
    job = {"name": work.name, "model": str(work.folder), "data": str(write_batch(work)), "dtype": work.dtype,
           "lora": work.lora, "alpha": 2 * work.lora, "seq": work.seq, "batch": work.batch, "threads": options.threads,
           "steps": options.steps, "rate": 1e-3, "clip": 1.0, "decay": 0.01, "micro_batch": options.micro_batch}
    rounds, broken = {engine: [] for engine in options.engines}, set()
    for number in range(options.rounds):
        for engine in options.engines:
            if engine in broken:
                continue
            print(f"{name}: {engine}, round {number + 1} of {options.rounds}", file=sys.stderr, flush=True)
            made = run_child(engine, job)
            if "error" in made:
                broken.add(engine)
                not_run.append(f"{engine}, {name}: {made['error']}")
            else:
                rounds[engine].append(made)
    return {"name": name, "job": job, "rounds": {engine: made for engine, made in rounds.items() if made}}


def middle(rounds, figure):
    return statistics.median(figure(made) for made in rounds)


def rate_of_products(row, dtype):
    """Floating-point operations a second of PyTorch's large products, measured after each of its runs; None without."""
    rates = [made["flops"][dtype] for rounds in row["rounds"].values() for made in rounds if "flops" in made]
    return statistics.median(rates) if rates else None


def line(label, cells):
    return label.ljust(NAME_WIDTH) + "".join(text.rjust(COLUMN_WIDTH) for text in cells)


def table(row):
    work, rounds = ALL[row["name"]], row["rounds"]
    if not rounds:
        return []
    tokens = work.batch * work.seq
    speed = {engine: tokens / middle(made, lambda one: one["step_s"]) for engine, made in rounds.items()}
    peak = {engine: middle(made, lambda one: one["peak_mib"]) for engine, made in rounds.items()}

    def with_ratio(values, ratio):
        if "plait" not in values:
            return [f"{value:.0f}" for value in values.values()]
        return [f"{value:.0f}" + ("" if engine == "plait" else f" ({ratio(values['plait'], value):.2f}x)")
                for engine, value in values.items()]

    what = f"LoRA of rank {work.lora}" if work.lora else "in full"
    lines = [line(f"{row['name']}, {what}", list(rounds)),
             line("  tokens per second", with_ratio(speed, lambda ours, theirs: ours / theirs)),
             line("  peak memory [MiB]", with_ratio(peak, lambda ours, theirs: ours / theirs))]
    for dtype in dict.fromkeys(("f32", work.dtype)):
        rate = rate_of_products(row, dtype)
        if rate:
            lines.append(line(f"  of products in {dtype} ({rate / 1e9:.0f} GFLOP/s)",
                              [f"{work.flops / tokens * value / rate:.0%}" for value in speed.values()]))
    shown = min(4, *(len(made[0]["losses"]) for made in rounds.values()))
    for step in range(shown):
        lines.append(line(f"  loss of step {step + 1}", [f"{made[0]['losses'][step]:.5f}" for made in rounds.values()]))
    first = [made[0]["losses"][0] for made in rounds.values()]
    if max(first) - min(first) > AGREEMENT[work.dtype] * min(first):
        lines.append("  THE FIRST LOSSES DO NOT AGREE: these are not the same model, or not the same batch")
    return lines


def main():
    options = arguments()
    for name in options.work:
        prepare(ALL[name])
    facts = machine.describe([])
    result = {"machine": facts, "threads": options.threads, "rows": [], "not_run": []}
    print(f"{facts['cpu']}, {facts['cpus']} processors, {options.threads} threads: {' '.join(facts['instruction_sets'])}")
    if facts["busy_before"] > 0.05:
        print(f"NOT IDLE: others used {facts['busy_before']:.0%} of the processors: these figures mean little")
    print(f"median of {options.rounds} rounds; in brackets: Plait's over the peer's")
    for name in options.work:
        result["rows"].append(compare(name, options, result["not_run"]))
        print("\n".join(["", *table(result["rows"][-1])]), flush=True)
    for entry in result["not_run"]:
        print(f"not run: {entry}")
    if options.json:
        options.json.write_text(json.dumps(result, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
