#!/usr/bin/env python3
"""Where the time of `./run test` goes: compiling, by folder and the longest steps; suites, the longest first.

usage: times.py BUILD...      build folders, as build/release

Of each step the last time it ran; seconds of steps that ran at once add up.
"""
import collections
import os
import sys


def steps(build):
    """Step -> seconds, from ninja's log."""
    out = {}
    with open(os.path.join(build, ".ninja_log"), encoding="utf-8") as log:
        for line in log:
            words = line.rstrip("\n").split("\t")
            if len(words) >= 4:
                out[words[3]] = (int(words[1]) - int(words[0])) / 1000
    return out


def folder(step):
    """core/passes/CMakeFiles/plait_passes.dir/Unity/unity_0_cxx.cxx.o -> core/passes."""
    name = step.split("/CMakeFiles/")[0]
    if name == "tests" and ".dir/" in step:
        return "tests: " + step.split("/CMakeFiles/")[1].split(".dir/")[0]
    return name if "/CMakeFiles/" in step else "links and tools"


def suites(build):
    """(suite, seconds) of the last runs, from ctest's record: name, runs, mean seconds."""
    path = os.path.join(build, "Testing", "Temporary", "CTestCostData.txt")
    if not os.path.exists(path):
        return []
    out = []
    with open(path, encoding="utf-8") as data:
        for line in data:
            words = line.split()
            if len(words) != 3:
                break
            out.append((words[0], float(words[2])))
    return out


def show(title, rows, most):
    rows = sorted(rows, key=lambda row: -row[1])
    print(f"{title}: {sum(seconds for _, seconds in rows):.0f} s in all")
    for name, seconds in rows[:most]:
        print(f"  {seconds:7.1f} s  {name}")


def main(builds):
    for build in builds:
        if not os.path.exists(os.path.join(build, ".ninja_log")):
            continue
        ran = steps(build)
        by_folder = collections.Counter()
        for step, seconds in ran.items():
            by_folder[folder(step)] += seconds
        show(f"{build}, building, by folder", by_folder.items(), 20)
        show(f"{build}, building, the longest steps", ran.items(), 15)
        show(f"{build}, suites", suites(build), 20)


if __name__ == "__main__":
    main(sys.argv[1:])
