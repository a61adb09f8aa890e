#!/usr/bin/env python3
"""Measures pipelines of training.

    ./run bench pipeline [--json F] [--parts overhead,emulated,memory,peers] [--threads N] [--rounds N] [--steps N] [--quick]

overhead: a model (Gemma 3 270M, or --model) on two ranks: pipeline=2, data=2 and tensor=2, and what the runner and its mail cost.
emulated: ranks that sleep to a cost model, against the simulation. memory: bytes of each rank against the sets of values that
the verifier counts. peers: PyTorch's own schedules, on the same weights and micro-batches; its environment is made first.

Every run is a process of its own, one after another, round by round; figures are medians. Wants an idle machine.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path

import machine
import workloads

HERE = Path(__file__).resolve().parent
BENCH = Path(os.environ.get("PLAIT_PIPELINE_BENCH", HERE.parents[1] / "build" / "release" / "tests" / "pipeline_bench"))
TORCH_PYTHON = workloads.PEERS / "torch" / "bin" / "python"
TIME_LIMIT_S = 3600
MIB = 2**20

GPT2 = {"model": str(workloads.MODELS / "gpt2-8-layers"), "vocabulary": 4096, "batch": 16, "seq": 128, "micro_batches": 8}
GEMMA = {"vocabulary": 262144, "batch": 8, "seq": 128, "micro_batches": 8, "lora": 16}
FEATURES = 640  # of Gemma 3 270M, which cross between stages
MOST_OVERHEAD, MOST_OFF, AGREEMENT = 0.03, 0.02, 1e-4
PEER_SCHEDULES = ("gpipe", "1f1b", "interleaved:2", "zb-v")


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path, help="write the figures there")
    parser.add_argument("--parts", type=lambda text: text.split(","), default=list(PARTS))
    parser.add_argument("--model", type=Path, default=workloads.MODELS / "gemma-3-270m")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--steps", type=int, default=3, help="steps that count in each round")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="one round of one step")
    options = parser.parse_args()
    unknown = [part for part in options.parts if part not in PARTS]
    if unknown:
        parser.error(f"no part {unknown[0]}; there are: {', '.join(PARTS)}")
    if options.quick:
        options.rounds = options.steps = 1
    return options


def child(command):
    made = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=TIME_LIMIT_S)
    try:
        result = json.loads(made.stdout.splitlines()[-1])
    except (IndexError, ValueError):
        result = {"error": (made.stderr.strip().splitlines() or [f"exit status {made.returncode}"])[-1]}
    if "error" in result:
        raise SystemExit(f"pipeline.py: {command[1]}: {result['error']}")
    return result


def plait(job):
    return child([BENCH, "train", json.dumps(job)])


def torch(job):
    return child([TORCH_PYTHON, HERE / "peers/peer_torch_pipeline.py", json.dumps(job)])


def job_of(work, options, **more):
    return {**work, "threads": options.threads, "steps": options.steps + 1, **more}


def rounds_of(options, runs):
    """{name: results} of runs {name: (function, job)} in turn; the first step of each warms up."""
    out = {name: [] for name in runs}
    for number in range(options.rounds):
        for name, (run, job) in runs.items():
            print(f"{name}, round {number + 1} of {options.rounds}", file=sys.stderr, flush=True)
            out[name].append(run(job))
    return out


def step_s(results):
    return statistics.median(second for one in results for second in one["seconds"][1:])


def verdict(what, figure, good):
    print(f"  {what}: {figure}{'' if good else '  MISSED'}")
    return good


def mail_s(options, work):
    path = Path(f"{BENCH}.mail.json")
    tokens = work["batch"] * work["seq"] // work["micro_batches"]
    subprocess.run([BENCH, "mail", "21", str(tokens), str(FEATURES), str(work["micro_batches"]), "--json", path],
                   check=True, stdout=subprocess.DEVNULL)
    row = json.loads(path.read_text())["rows"][0]
    path.unlink()
    return row


def overhead(options):
    if not (options.model / "model.onnx").exists():
        print(f"not run: overhead: there is no {options.model}/model.onnx (./run demo fetches it)")
        return None
    work = {**GEMMA, "model": str(options.model)}
    runs = {mesh: (plait, job_of(work, options, mesh=mesh, waits=True)) for mesh in ("pipeline=2", "data=2", "tensor=2")}
    for _, job in runs.values():  # data ranks halve the rows of a micro-batch
        job["micro_batches"] = 4 if job["mesh"] == "data=2" else work["micro_batches"]
    results, mail = rounds_of(options, runs), mail_s(options, work)
    rows = []
    for mesh, made in results.items():
        whole = step_s(made)
        waited = statistics.median(w / s for one in made for w, s in zip(one["waited_s"][1:], one["seconds"][1:]))
        print(f"{mesh:<12}{whole:8.3f} s a step, rank 0 waits {waited:.1%} of it")
        rows.append({"mesh": mesh, "step_s": whole, "waited": waited})
    share = mail["step_s"] / rows[0]["step_s"]
    print(f"mail and runner without sections: {mail['step_s'] * 1e3:.3f} ms a step, of it {mail['runner_s'] * 1e3:.3f} ms the runner")
    good = verdict("share of the step", f"{share:.3%} (at most {MOST_OVERHEAD:.0%})", share <= MOST_OVERHEAD)
    return {"rows": rows, "mail": mail, "share": share, "good": good}


def emulated(options):
    path = Path(f"{BENCH}.emulated.json")
    subprocess.run([BENCH, "emulated", str(options.rounds), "--json", path], check=False)
    made = json.loads(path.read_text())
    path.unlink()
    return {**made, "good": made["within"]}


def memory(options):
    """With whole backwards a rank's memory is that of its sections, and of a set of slots for each live micro-batch: the line
    through naive (one set) and gpipe (all of them) has 1f1b's bytes on it."""
    make_model()
    work = {**GPT2, "steps": 1, "threads": options.threads}
    names = ("naive", "gpipe", "1f1b", "zb-h1", "interleaved:2", "zb-v")
    rows, good = [], True
    for ranks in (2, 4):
        made = {name: plait({**work, "mesh": f"pipeline={ranks}", "schedule": name})["ranks"] for name in names}
        for rank in range(ranks):
            one, all_, some = (made[name][rank] for name in ("naive", "gpipe", "1f1b"))
            sets = [each["forward_to_weight"] for each in (one, all_, some)]
            per_set = (all_["run_bytes"] - one["run_bytes"]) / (sets[1] - sets[0])
            expected = one["run_bytes"] + per_set * (sets[2] - sets[0])
            ratio = some["run_bytes"] / expected
            cells = ", ".join(f"{name} {made[name][rank]['run_bytes'] / MIB:.1f} ({made[name][rank]['forward_to_input']}/"
                              f"{made[name][rank]['forward_to_weight']}/{made[name][rank]['input_to_weight']})" for name in names)
            print(f"pipeline={ranks} rank {rank}: MiB (sets to I/to W/from I to W): {cells}")
            good &= verdict("1f1b over what its sets make", f"{ratio:.4f}", abs(ratio - 1) <= MOST_OFF)
            rows.append({"ranks": ranks, "rank": rank, "ratio": ratio, **{name: made[name][rank] for name in names}})
    return {"rows": rows, "good": bool(good)}


def make_model():
    out = Path(GPT2["model"])
    if (out / "model.onnx").exists():
        return
    subprocess.run([HERE / "peers/setup_peers.sh", "--torch"], check=True)
    subprocess.run([TORCH_PYTHON, HERE / "models/make_gpt2_30m.py", out, "--layers", "8", "--vocabulary", str(GPT2["vocabulary"])],
                   check=True)


def peers(options):
    subprocess.run([HERE / "peers/setup_peers.sh", "--torch"], check=True)
    make_model()
    rows, good = [], True
    for ranks in (2, 4):
        for name in PEER_SCHEDULES:
            job = job_of(GPT2, options, mesh=f"pipeline={ranks}", ranks=ranks, schedule=name)
            made = rounds_of(options, {"plait": (plait, job), "torch": (torch, job)})
            seconds = {engine: step_s(all_) for engine, all_ in made.items()}
            peaks = {engine: statistics.median(one["peak_mib"] for one in all_) for engine, all_ in made.items()}
            losses = [all_[0]["losses"][0] for all_ in made.values()]
            speed, space = seconds["torch"] / seconds["plait"], peaks["plait"] / peaks["torch"]
            print(f"{name}, {ranks} ranks: {seconds['plait']:.3f} s a step to {seconds['torch']:.3f} s, "
                  f"{peaks['plait']:.0f} MiB to {peaks['torch']:.0f} MiB")
            good &= verdict("speed over PyTorch's", f"{speed:.2f} (at least 1, aim 1.5)", speed >= 1)
            verdict("memory over PyTorch's", f"{space:.2f} (aim 0.6)", space <= 0.6)
            good &= verdict("first losses", " and ".join(f"{loss:.6f}" for loss in losses),
                            abs(losses[0] - losses[1]) <= AGREEMENT * losses[0])
            rows.append({"ranks": ranks, "schedule": name, "step_s": seconds, "peak_mib": peaks, "speed": speed,
                         "space": space, "losses": losses})
    return {"rows": rows, "good": bool(good)}


PARTS = {"overhead": overhead, "emulated": emulated, "memory": memory, "peers": peers}


def main():
    options = arguments()
    facts = machine.describe([])
    result = {"machine": facts, "threads": options.threads}
    print(f"{facts['cpu']}, {facts['cpus']} processors, {options.threads} threads: {' '.join(facts['instruction_sets'])}")
    if facts["busy_before"] > 0.05:
        print(f"NOT IDLE: others used {facts['busy_before']:.0%} of the processors: these figures mean little")
    for part in options.parts:
        print(f"\n{part}", flush=True)
        result[part] = PARTS[part](options)
    if options.json:
        options.json.write_text(json.dumps(result, indent=1) + "\n")
    return int(any(result[part] and not result[part]["good"] for part in options.parts))


if __name__ == "__main__":
    sys.exit(main())
