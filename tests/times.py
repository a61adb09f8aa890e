#!/usr/bin/env python3
"""Where the time of `./run test` goes: processor seconds of its steps; compiling, by folder and the longest steps; suites, the
longest first.

usage: times.py [--steps FILE] BUILD...      build folders, as build/release

FILE has a line for each step of `run`: what, seconds, milliseconds of processors (user and system, of all its processes), with
tabs between. The rest is from the records of ninja and ctest, which have no processor seconds: of each of their steps the last
time it ran; seconds of those that ran at once add up.
"""
import collections
import os
import sys

# A budget, not a measurement: processor seconds that `./run test` may take from nothing, on two cores of an EPYC 9004 at 2.6 GHz.
BUDGET = 4800


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


def show_steps(path):
    """The table of the steps of `run`, and their sum next to the budget."""
    rows = collections.OrderedDict()
    with open(path, encoding="utf-8") as file:
        for line in file:
            what, seconds, milliseconds = line.rstrip("\n").split("\t")
            known = rows.get(what, (0, 0))
            rows[what] = (known[0] + int(seconds), known[1] + int(milliseconds) / 1000)
    print("processor s  seconds  step")
    for what, (seconds, processor) in rows.items():
        print(f"{processor:11.1f}  {seconds:7d}  {what}")
    total = sum(processor for _, processor in rows.values())
    print(f"{total:11.1f}  {sum(seconds for seconds, _ in rows.values()):7d}  in all; the budget of all release suites is {BUDGET}"
          " processor seconds")


def main(builds):
    if builds[:1] == ["--steps"]:
        show_steps(builds[1])
        builds = builds[2:]
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
