#!/usr/bin/env python3
"""Processes that fail: rank k throws, stalls or dies at step n, and all others hear of it by name.

usage: mpi_faults.py MPIRUN PROGRAM [--all]     PROGRAM has a test Faults.OfProcesses

Without --all some (k, n); with it each of them. The bound of 10 s is in the test (faults_test.cpp, mesh_test.cpp); here it is counted
that every other rank kept to it.
"""
import os
import subprocess
import sys

RANKS, STEPS = 4, 9


def cases(everything):
    for shared in ("memory", "messages"):
        for fault in ("throws", "stalls", "dies"):
            for rank in range(RANKS):
                for step in range(STEPS):
                    if everything or (rank * 9 + step) % 13 == 5:
                        yield fault, rank, step, shared


def main(mpirun, program, *options):
    failures, count = 0, 0
    for case in cases("--all" in options):
        words = " ".join(map(str, case))
        done = subprocess.run(
            [mpirun, "--allow-run-as-root", "--oversubscribe", "--mca", "orte_enable_recovery", "1", "-n", str(RANKS),
             program, "--gtest_filter=Faults.OfProcesses"],
            env={**os.environ, "PLAIT_FAULT": words}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            timeout=60, check=False)
        heard = done.stdout.count("a rank heard of it")
        count += 1
        if heard != RANKS - 1:
            failures += 1
            print(f"{words}: {heard} of {RANKS - 1} ranks heard of it\n{done.stdout}")
    print(f"{count} faults, {failures} failures")
    return 1 if failures or not count else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
