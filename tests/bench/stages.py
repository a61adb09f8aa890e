#!/usr/bin/env python3
"""Measures generation over two pipeline stages: how groups of requests fill the pipe.

    ./run bench stages [--model DIR] [--rounds 3] [--tokens 100] [--json F]

Requests are decoded together, each rank with one thread: on one rank, and on two stages with one request, which leaves each
stage idle while the other one computes, and with more, which are divided into two groups in flight. Utilisation is the time in
which a stage computes, of the whole. Each form runs in a process of its own, round by round; figures are medians. Wants two
idle cores.
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

import machine
import plait_runner
from measure import prompt

TIME_LIMIT_S = 900
PROMPT = 16
# Form -> (mesh, requests).
FORMS = {"one rank, 1 request": ("", 1), "one rank, 2 requests": ("", 2),
         "two stages, 1 request": ("pipeline=2", 1), "two stages, 2 requests": ("pipeline=2", 2),
         "two stages, 4 requests": ("pipeline=2", 4), "two stages, 8 requests": ("pipeline=2", 8)}


def measure(job):
    """One form, in this process: tokens a second, ids, and each rank's utilisation."""
    engine = plait_runner.Engine({**job, "prompts": [PROMPT], "decode": job["tokens"] + 8})
    prompts = [prompt(PROMPT, seed) for seed in range(1, job["requests"] + 1)]
    engine.generate(prompts, 8)
    timing = engine.generate(prompts, job["tokens"])
    text = plait_runner.c_void_p()
    engine.library.generator_trace(engine.generator, plait_runner.ctypes.byref(text))
    events = [event for event in json.loads(engine.library.text(text))["traceEvents"] if event.get("ph") == "X"]
    end = max(event["ts"] + event["dur"] for event in events)
    begin = end - timing.rest_s * 1e6  # decoding ended last
    busy = {}
    for event in events:
        if event["ts"] >= begin:  # "wait" is part of a collective
            sign = -1 if event["cat"] == "wait" else 1
            busy[event["tid"]] = busy.get(event["tid"], 0) + sign * event["dur"]
    return {"tokens_s": timing.rest_tokens / timing.rest_s, "ids": timing.ids,
            "busy": [busy[rank] / (end - begin) for rank in sorted(busy)]}


def run_child(job):
    made = subprocess.run(["taskset", "-c", "0-1", sys.executable, __file__, "--child", json.dumps(job)],
                          capture_output=True, text=True, timeout=TIME_LIMIT_S, env=os.environ, check=False)
    if made.returncode:
        raise RuntimeError((made.stderr.strip().splitlines() or ["no output"])[-1])
    return json.loads(made.stdout.splitlines()[-1])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="models/gemma-3-270m")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--tokens", type=int, default=100)
    parser.add_argument("--json", type=Path, help="write the figures of every round there")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        print(json.dumps(measure(json.loads(options.child))))
        return 0
    facts = machine.describe([1, 2])
    rounds = {form: [] for form in FORMS}
    for number in range(options.rounds):
        for form, (mesh, requests) in FORMS.items():
            print(f"{form}, round {number + 1} of {options.rounds}", file=sys.stderr, flush=True)
            rounds[form].append(run_child({"model": options.model, "threads": 1, "requests": requests,
                                           "tokens": options.tokens, "options": {"mesh": mesh, "trace": "true"}}))
    print(f"{facts['cpu']}, {facts['cpus']} processors; others used {facts['busy_before']:.0%} of them before")
    print(f"{'':26}{'tokens/s':>10}{'utilisation of the ranks':>28}")
    for form, made in rounds.items():
        busy = [statistics.median(values) for values in zip(*(one["busy"] for one in made))]
        print(f"{form:26}{statistics.median(one['tokens_s'] for one in made):10.1f}"
              f"{', '.join(f'{share:.0%}' for share in busy):>28}")
    expected = rounds["one rank, 1 request"][0]["ids"][0]
    equal = all(one["ids"][0] == expected for made in rounds.values() for one in made)
    print(f"tokens are {'equal' if equal else 'NOT equal'} in all forms")
    if options.json:
        options.json.write_text(json.dumps(rounds, indent=1) + "\n")
    return 0 if equal else 1


if __name__ == "__main__":
    sys.exit(main())
