#!/usr/bin/env python3
"""`plait train` on a batch that it sees again and again, watched from a child process of its own: see train.py.

The program is $PLAIT, or the release build's.
"""

import json
import os
import subprocess
import tempfile
import time
from pathlib import Path

from measure import child_main

BUILT = Path(__file__).resolve().parents[2] / "build" / "release" / "bindings" / "cli" / "plait"


def command(job, out):
    words = [os.environ.get("PLAIT", BUILT), "train", job["model"], "--data", job["data"], "--out", out, "--json",
             "--seq", job["seq"], "--batch", job["batch"], "--threads", job["threads"], "--dtype", job["dtype"],
             # One step more than is counted: while it runs, nothing has been saved yet.
             "--steps", job["steps"] + 1, "--lr", job["rate"], "--schedule", "constant", "--clip", job["clip"],
             "--weight-decay", job["decay"], "--option", "tokenizer=none"]
    if job["lora"]:
        words += ["--lora", job["lora"], "--lora-alpha", job["alpha"]]
    if job.get("micro_batch"):
        words += ["--micro-batch", job["micro_batch"]]
    return [str(word) for word in words]


def peak_mib(pid):
    try:
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) / 1024
    except OSError:
        pass
    return None


def run(job, _):
    peak = None
    with tempfile.TemporaryDirectory() as folder, open(Path(folder) / "errors", "w+") as errors:
        out = Path(folder) / "run"
        with subprocess.Popen(command(job, out), stdout=subprocess.PIPE, stderr=errors, text=True) as process:
            while process.poll() is None:
                log = out / "log.jsonl"
                if not log.exists() or log.read_text().count("\n") <= job["steps"]:
                    peak = peak_mib(process.pid) or peak
                time.sleep(0.02)
            text = process.stdout.read()
        if process.returncode:
            errors.seek(0)
            raise RuntimeError((errors.read().strip().splitlines() or [f"exit status {process.returncode}"])[-1])
    made = json.loads(text)
    return {"losses": made["losses"][:-1], "seconds": made["timings"]["step_s"][:-1], "peak_mib": peak, "notes": []}


if __name__ == "__main__":
    child_main(None, run)
