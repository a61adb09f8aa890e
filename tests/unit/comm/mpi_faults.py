#!/usr/bin/env python3
"""Processes that fail: rank k throws, stalls or dies at step n, and all others hear of it by name.

usage: mpi_faults.py MPIRUN PROGRAM [--all] [--dies]     PROGRAM has a test Faults.OfProcesses

Without --all some (k, n); with it each of them. Every other rank has to hear of it within a bound, which is far below the deadline
of ranks where no deadline is needed to find the fault. Limits grow with the load of the machine. With --dies ranks do nothing
else, and what they leave in a folder is what a test Faults.AreSurvived goes on with when they are gone.
"""
import os
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "bindings"))
from limits import HANG_S, machine_load  # noqa: E402

RANKS, STEPS = 4, 9
NEVER = HANG_S  # a deadline that no fault has to wait for


def cases(everything, kinds):
    for shared in ("memory", "messages"):
        for fault in kinds:
            for rank in range(RANKS):
                for step in range(STEPS):
                    if everything or (rank * 9 + step) % 13 == 5:
                        yield fault, rank, step, shared


def limits(fault, shared):
    """Deadline and bound in seconds. Only a deadline finds a rank that stalls, or that is gone from another machine."""
    load = machine_load()
    by_deadline = fault == "stalls" or (fault == "dies" and shared == "messages")
    return (2 * load if by_deadline else NEVER), 15 * load


def run(words, fault, folder):
    return subprocess.run(words, env={**os.environ, "PLAIT_FAULT": fault, "PLAIT_FAULT_FOLDER": folder},
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=2 * HANG_S, check=False)


def main(mpirun, program, *options):
    dies = "--dies" in options
    failures, count = 0, 0
    for case in cases("--all" in options, ("dies",) if dies else ("throws", "stalls", "dies")):
        fault, _, _, shared = case
        words = " ".join(map(str, (*case, *limits(fault, shared))))
        with tempfile.TemporaryDirectory() as folder:
            done = run([mpirun, "--allow-run-as-root", "--oversubscribe", "--mca", "orte_enable_recovery", "1", "-n",
                        str(RANKS), program, "--gtest_filter=Faults.OfProcesses"], words, folder)
            heard = done.stdout.count("a rank heard of it")
            count += 1
            if heard != RANKS - 1:
                failures += 1
                print(f"{words}: {heard} of {RANKS - 1} ranks heard of it\n{done.stdout}")
            elif dies:
                after = run([program, "--gtest_filter=Faults.AreSurvived"], words, folder)
                if after.returncode != 0 or "1 test" not in after.stdout or "SKIPPED" in after.stdout:
                    failures += 1
                    print(f"{words}: what was left is no good\n{after.stdout}")
    print(f"{count} faults, {failures} failures")
    return 1 if failures or not count else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
