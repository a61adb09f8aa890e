#!/usr/bin/env python3
"""Measures generation side by side: Plait, ONNX Runtime on the same file, llama.cpp on the same weights.

    ./run bench generate [--json F] [--peers all] [--models gemma,llama1b] [--threads 1,2] [--quick]

Each engine runs in a child process of its own, one after another, round by round; figures are medians. Missing models
and environments are made first (some minutes the first time, and 15 GB for both models). Wants an idle machine.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import machine
import report
import workloads

HERE = Path(__file__).resolve().parent
BATCH = 8
TIME_LIMIT_S = 1800
# Engine -> (its Python, its script, bytes of one cached number by dtype where it is not f32).
ENGINES = {
    "plait": (Path(sys.executable), "plait_runner.py", {"bf16": 2}),
    "onnxruntime": (workloads.PEERS_PYTHON, "peers/peer_onnxruntime.py", {}),
    # What its own model builder would run for int4, on our file.
    "onnxruntime-genai": (workloads.PEERS_PYTHON, "peers/peer_onnxruntime_genai.py", {}),
    "llama.cpp": (workloads.PEERS_PYTHON, "peers/peer_llama_cpp.py", dict.fromkeys(workloads.BITS, 2)),
    # Only with int4, where llama.cpp is q4_0.
    "llama.cpp q8_0": (workloads.PEERS_PYTHON, "peers/peer_llama_cpp.py", {"int4": 2}),
    "openvino": (workloads.OPENVINO_PYTHON, "peers/peer_openvino.py", dict.fromkeys(workloads.BITS, 1)),
}
ONLY_FOR = {"onnxruntime-genai": ("int4",), "llama.cpp q8_0": ("int4",), "openvino": ("f32", "bf16")}
PEER_SETS = {"none": ["plait"], "default": [name for name in ENGINES if name != "openvino"], "all": list(ENGINES)}
CACHED_F32 = 4


def arguments():
    def items(text):
        return text.split(",")

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path, help="write the figures of every round there")
    parser.add_argument("--peers", choices=PEER_SETS, default="default", help="all: OpenVINO GenAI too")
    parser.add_argument("--engines", type=items, help="just these, of: " + ", ".join(ENGINES))
    parser.add_argument("--models", type=items, default=list(workloads.ALL))
    parser.add_argument("--dtypes", type=items, default=["f32", "bf16"])
    parser.add_argument("--threads", type=items, default=["1", "2"])
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--quick", action="store_true", help="one round, short decode, the most threads only")
    options = parser.parse_args()
    options.threads = sorted(int(count) for count in options.threads)
    options.engines = options.engines or PEER_SETS[options.peers]
    for name, known in (("engines", ENGINES), ("models", workloads.ALL), ("dtypes", workloads.BITS)):
        unknown = set(getattr(options, name)) - set(known)
        if unknown:
            parser.error(f"--{name}: unknown {', '.join(sorted(unknown))}; there are {', '.join(known)}")
    options.rounds = options.rounds or (1 if options.quick else 5)
    options.threads = options.threads[-1:] if options.quick else options.threads
    return options


def job(model, dtype, threads, quick):
    return {"model": str(model.folder(dtype)), "gguf": str(model.gguf(dtype)), "dtype": dtype, "threads": threads,
            "gguf_q8_0": str(model.gguf("int8")),
            "openvino": str(model.openvino(dtype)), "prompts": [128] if quick else [128, 512],
            "decode": 32 if quick else 128, "batch": BATCH}


def run_child(engine, work):
    """One engine's result, or {"error": why there is none}."""
    python, script, _ = ENGINES[engine]
    if engine == "llama.cpp q8_0":
        work = {**work, "gguf": work["gguf_q8_0"]}
    if not (HERE / script).exists() or not python.exists():
        return {"error": f"{script if python.exists() else python} is not there"}
    # Thread pools of numerical libraries would keep cores busy in addition to the engine's own threads.
    environment = {**os.environ, "OMP_NUM_THREADS": str(work["threads"]), "OPENBLAS_NUM_THREADS": "1"}
    try:
        made = subprocess.run([python, HERE / script, json.dumps(work)], capture_output=True, text=True,
                              timeout=TIME_LIMIT_S, env=environment)
    except subprocess.TimeoutExpired:
        return {"error": f"no answer in {TIME_LIMIT_S} s"}
    if made.returncode < 0:
        return {"error": f"killed by {signal.Signals(-made.returncode).name}"}
    try:
        return json.loads(made.stdout.splitlines()[-1])
    except (IndexError, ValueError):
        return {"error": (made.stderr.strip().splitlines() or ["no output"])[-1]}


def compare(model, dtype, threads, options, not_run):
    """All rounds of one model, dtype and number of threads, interleaved between the engines; None if none ran."""
    work = job(model, dtype, threads, options.quick)
    what = f"{model.name} {dtype}, {report.counted(threads)}"
    chosen = [engine for engine in options.engines if dtype in ONLY_FOR.get(engine, workloads.BITS)]
    results, broken = {engine: [] for engine in chosen}, set()
    workloads.warm_files(model, dtype, chosen)
    for number in range(options.rounds):
        for engine in chosen:
            if engine in broken:
                continue
            print(f"{what}: {engine}, round {number + 1} of {options.rounds}", file=sys.stderr, flush=True)
            made = run_child(engine, work)
            if "error" in made:
                broken.add(engine)
                not_run.append({"what": f"{engine}, {what}", "why": made["error"]})
            else:
                results[engine].append(made)
    engines = {engine: {"rounds": [made["figures"] for made in rounds],
                        "median": report.medians([made["figures"] for made in rounds]),
                        "answer": rounds[0]["answer"], "notes": rounds[0]["notes"]}
               for engine, rounds in results.items() if rounds}
    if not engines:
        return None
    return {"model": model.name, "dtype": dtype, "threads": threads, "work": work, "engines": engines,
            "bytes_per_token": bytes_read(model, dtype, work, engines)}


def bytes_read(model, dtype, work, engines):
    """Per engine and batch: bytes that a token of the decode has to read, at the middle of its context."""
    context = work["prompts"][0] + work["decode"] // 2

    def bits(engine):
        return workloads.BITS["int8" if engine == "llama.cpp q8_0" else dtype]

    return {engine: {str(batch): model.bytes_per_token(bits(engine), context, batch,
                                                       ENGINES[engine][2].get(dtype, CACHED_F32))
                     for batch in (1, work["batch"])} for engine in engines}


def main():
    options = arguments()
    models = [workloads.ALL[name] for name in options.models]
    workloads.prepare(models, options.dtypes, "openvino" in options.engines)
    result = {"machine": machine.describe(options.threads), "rounds": options.rounds, "rows": [], "not_run": []}
    for model in models:
        for dtype in options.dtypes:
            for threads in options.threads:
                row = compare(model, dtype, threads, options, result["not_run"])
                if row:
                    row["machine_gb_s"] = result["machine"]["read_gb_s"].get(threads)
                    result["rows"].append(row)
    print(report.text(result))
    if options.json:
        options.json.write_text(json.dumps(result, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
