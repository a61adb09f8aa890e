#!/usr/bin/env python3
"""Measures a decoder on a mesh: one core, two threads of one rank, two ranks of one core each, side by side.

    ./run bench shard [--models gemma,llama1b] [--dtypes bf16,int4] [--rounds 5] [--tokens 500] [--json F]

Each form runs in a process of its own, one after another, round by round, with the machine's read bandwidth on one core and
on two in each round; figures are medians over the rounds. Behind them the all_reduce of `./run bench comm`. Wants two idle
cores.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

import machine
import plait_runner
import workloads
from measure import prompt

HERE = Path(__file__).resolve().parent
TIME_LIMIT_S = 1800
# Form -> (threads a rank, mesh, cores that it may use).
FORMS = {
    "one core": (1, "", 1),
    "two threads": (2, "", 2),
    "two ranks": (1, "tensor=2", 2),
}
PREFILL = 512


def measure(job):
    """One form, in this process: seconds of each token, of prompts, and of collectives."""
    engine = plait_runner.Engine({**job, "prompts": [PREFILL], "decode": job["tokens"]})
    library = engine.library
    first = statistics.median(engine.generate([prompt(PREFILL, seed)], 1).first_s for seed in range(3))
    before = collectives(library, engine.generator)
    ids, times = decode(engine, prompt(16, 1), job["tokens"])
    after = collectives(library, engine.generator)
    ranks = plait_runner.c_void_p()
    library.generator_ranks(engine.generator, plait_runner.ctypes.byref(ranks))
    return {"times": times, "prefill_s": first, "ids": ids[:16],
            "collectives_s": (after[0] - before[0]) / len(times), "waited_s": (after[1] - before[1]) / len(times),
            "ranks": json.loads(library.text(ranks))}


def decode(engine, prompt_ids, tokens):
    """The ids, and the seconds between tokens after the first."""
    request = engine.submit(prompt_ids, tokens + 1)
    ids = [engine.next(request)]
    last, times = time.perf_counter(), []
    for _ in range(tokens):
        ids.append(engine.next(request))
        now = time.perf_counter()
        times.append(now - last)
        last = now
    engine.library.request_release(request)
    return ids, times


def collectives(library, generator):
    """Seconds in collectives, and of these those of waiting, so far: of rank 0."""
    text = plait_runner.c_void_p()
    library.generator_profile(generator, plait_runner.ctypes.byref(text))
    rows = json.loads(library.text(text))
    named = [row for op, row in rows.items() if op.startswith("All") or op.startswith("Reduce")]
    return sum(row["seconds"] for row in named), sum(row["waited"] for row in named)


def percentile(values, share):
    return sorted(values)[min(int(len(values) * share), len(values) - 1)]


def run_child(job, cores):
    made = subprocess.run(["taskset", "-c", f"0-{cores - 1}", sys.executable, __file__, "--child", json.dumps(job)],
                          capture_output=True, text=True, timeout=TIME_LIMIT_S, env=os.environ)
    if made.returncode:
        raise RuntimeError((made.stderr.strip().splitlines() or ["no output"])[-1])
    return json.loads(made.stdout.splitlines()[-1])


def compare(model, dtype, options):
    """The medians over the rounds, by form, and of the bandwidths."""
    workloads.warm_files(model, dtype, [])
    rounds = {form: [] for form in FORMS}
    bandwidth = {1: [], 2: []}
    for number in range(options.rounds):
        for threads, rate in machine.read_bandwidth([1, 2]).items():
            bandwidth[threads].append(rate)
        for form, (threads, mesh, cores) in FORMS.items():
            print(f"{model.name} {dtype}: {form}, round {number + 1} of {options.rounds}", file=sys.stderr, flush=True)
            made = run_child({"model": str(model.folder(dtype)), "threads": threads,
                              "options": {"mesh": mesh, "profile": "true"}, "tokens": options.tokens}, cores)
            rounds[form].append({
                "p50_ms": percentile(made["times"], 0.5) * 1e3, "p95_ms": percentile(made["times"], 0.95) * 1e3,
                "p99_ms": percentile(made["times"], 0.99) * 1e3, "prefill_s": made["prefill_s"],
                "collectives_ms": made["collectives_s"] * 1e3, "waited_ms": made["waited_s"] * 1e3,
                "weights_mb": sum(rank["weight_bytes"] for rank in made["ranks"]) / 1e6, "ids": made["ids"]})
    median = {form: {key: statistics.median(one[key] for one in all_rounds) for key in all_rounds[0] if key != "ids"}
              for form, all_rounds in rounds.items()}
    rates = {threads: statistics.median(all_rates) for threads, all_rates in bandwidth.items() if all_rates}
    return {"model": model.name, "dtype": dtype, "median": median, "rounds": rounds, "read_gb_s": rates,
            "same_tokens": len({tuple(one["ids"]) for all_rounds in rounds.values() for one in all_rounds}) == 1}


def verdict(name, value, must, aim):
    state = "aim met" if value >= aim else "must met" if value >= must else "MUST NOT MET"
    return f"  {name}: {value:.2f} (must {must:.2f}, aim {aim:.2f}): {state}"


def print_row(row):
    print(f"\n{row['model']} {row['dtype']}; tokens are {'equal' if row['same_tokens'] else 'NOT equal'} in all forms")
    print(f"{'':14}{'p50 ms':>9}{'p95':>9}{'p99':>9}{'prefill s':>11}{'collectives ms':>16}{'of it waiting':>15}"
          f"{'weights MB':>12}")
    for form, figures in row["median"].items():
        print(f"{form:14}{figures['p50_ms']:9.2f}{figures['p95_ms']:9.2f}{figures['p99_ms']:9.2f}"
              f"{figures['prefill_s']:11.3f}{figures['collectives_ms']:16.3f}{figures['waited_ms']:15.3f}"
              f"{figures['weights_mb']:12.1f}")
    one, threads, ranks = (row["median"][form] for form in FORMS)
    if len(row["read_gb_s"]) == 2:
        allowed = row["read_gb_s"][2] / row["read_gb_s"][1]
        print(f"  read bandwidth: {row['read_gb_s'][1]:.1f} GB/s on one core, {row['read_gb_s'][2]:.1f} on two: {allowed:.2f} times")
        print(verdict("decode, share of that ratio", one["p50_ms"] / ranks["p50_ms"] / allowed, 0.8, 0.95))
    print(verdict("decode, two threads' time over two ranks'", threads["p50_ms"] / ranks["p50_ms"], 0, 0.95))
    print(verdict("prefill, times one core", one["prefill_s"] / ranks["prefill_s"], 0, 1.8))


def prepare(model, dtype):
    """Only the ONNX model: llama.cpp is not needed here."""
    if model.name == "gemma":
        workloads.run(workloads.ROOT / "samples" / "gemma3" / "fetch.sh", "--dtype", dtype)
    elif not (model.folder(dtype) / "model.onnx").exists():
        workloads.run(HERE / "peers/setup_peers.sh")
        workloads.make(model, dtype)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", type=lambda text: text.split(","), default=list(workloads.ALL))
    parser.add_argument("--dtypes", type=lambda text: text.split(","), default=["bf16", "int4"])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--tokens", type=int, default=500)
    parser.add_argument("--json", type=Path, help="write the figures of every round there")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        print(json.dumps(measure(json.loads(options.child))))
        return 0
    result = {"machine": machine.describe([1, 2]), "rows": []}
    for name in options.models:
        for dtype in options.dtypes:
            prepare(workloads.ALL[name], dtype)
            result["rows"].append(compare(workloads.ALL[name], dtype, options))
    machine_facts = result["machine"]
    print(f"{machine_facts['cpu']}, {machine_facts['cpus']} processors: {' '.join(machine_facts['instruction_sets'])}")
    if machine_facts["busy_before"] > 0.05:
        print(f"others used {machine_facts['busy_before']:.0%} of the processors: the figures are low")
    for row in result["rows"]:
        print_row(row)
    if options.json:
        options.json.write_text(json.dumps(result, indent=1) + "\n")
    print("\nall_reduce between two ranks", flush=True)
    return subprocess.run([os.environ["PLAIT_COMM_BENCH"], str(options.rounds)], check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
