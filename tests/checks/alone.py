#!/usr/bin/env python3
"""Each file of the library includes what it uses: it can be compiled alone.

usage: alone.py ROOT BUILD

A build compiles several files at a time (plait_together in CMakeLists.txt), or behind a precompiled header, and would not
notice. Here each has its own turn, with the flags of its target, as far as its syntax goes.
"""
import concurrent.futures
import json
import os
import re
import shlex
import subprocess
import sys

TOGETHER = re.compile(r'^#include "(.*\.cpp)"', re.MULTILINE)


def sources_of(entry, root):
    """The files of ours that one command compiles."""
    file = os.path.join(entry["directory"], entry["file"])
    if "/Unity/" not in file:
        return [file] if file.startswith(root) else []
    with open(file) as text:
        return TOGETHER.findall(text.read())


def alone(entry, source):
    """The command's flags, for this source."""
    words, out = iter(shlex.split(entry["command"])), []
    for word in words:
        if word in ("-o", "-include"):
            next(words)
        elif word != "-Winvalid-pch" and word != entry["file"]:
            out.append(word)
    return [word for word in out if word != "-c"] + ["-fsyntax-only", source]


def main():
    root, build = os.path.realpath(sys.argv[1]) + "/", os.path.realpath(sys.argv[2]) + "/"
    with open(build + "compile_commands.json") as file:
        commands = json.load(file)
    jobs = {}
    for entry in commands:
        for source in sources_of(entry, root):
            if source.endswith(".cpp") and not source.startswith((root + "tests/", build)):
                jobs.setdefault(source, alone(entry, source))
    if not jobs:
        sys.exit(f"{build} compiles nothing of {root}")

    def check(words):
        return subprocess.run(words, cwd=build, capture_output=True, text=True)

    failed = 0
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for source, result in zip(jobs, pool.map(check, jobs.values())):
            if result.returncode:
                failed += 1
                print(f"{source} does not compile alone:\n{result.stderr}", file=sys.stderr)
    print(f"{len(jobs) - failed} of {len(jobs)} files compile alone")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
