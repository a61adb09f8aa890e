#!/usr/bin/env python3
"""Every pattern of a suite's filter matches a test: a renamed test would otherwise change what suites run, unseen.

usage: filters.py CTEST BUILD

The suites are those of the build tree BUILD: programs of GoogleTest with the argument --gtest_filter, or the variable GTEST_FILTER.
"""
import fnmatch
import functools
import json
import os
import re
import subprocess
import sys
import tempfile


@functools.cache
def tests_of(command, environment):
    """Full names of the tests that the command lists; None if it is no program of GoogleTest."""
    listed = subprocess.run([*command, "--gtest_list_tests"], capture_output=True, text=True, check=False,
                            env={**os.environ, **dict(word.split("=", 1) for word in environment)})
    if listed.returncode:
        return None
    names, suite = [], ""
    for line in listed.stdout.splitlines():
        word = line.split("#")[0].strip()
        if not line.startswith(" "):
            suite = word
        elif suite.endswith("."):
            names.append(suite + word)
    return names


def filter_of(test):
    """The command up to its program, by one rank under mpirun; what it needs of the environment; its filter. None without a filter."""
    words = test["command"]
    program = next((k for k, word in enumerate(words) if re.search(r"/\w+_test$", word)), None)
    environment = next((p["value"] for p in test["properties"] if p["name"] == "ENVIRONMENT"), [])
    filters = [word.split("=", 1)[1] for word in words if word.startswith("--gtest_filter=")]
    filters += [word.split("=", 1)[1] for word in environment if word.startswith("GTEST_FILTER=")]
    if program is None or not filters:
        return None
    command = ["1" if k and words[k - 1] == "-n" else word for k, word in enumerate(words[:program + 1])]
    return tuple(command), tuple(word for word in environment if not word.startswith("GTEST_")), filters[0]


def main():
    ctest, build = sys.argv[1:]
    with tempfile.TemporaryDirectory() as folder:  # ctest writes a log where it runs, and may be running there
        with open(os.path.join(folder, "CTestTestfile.cmake"), "w", encoding="utf-8") as file:
            file.write(f'subdirs("{build}")\n')
        listed = subprocess.run([ctest, "--test-dir", folder, "--show-only=json-v1"], capture_output=True, text=True, check=True)
    patterns = faults = 0
    for test in json.loads(listed.stdout)["tests"]:
        found = filter_of(test) if "command" in test else None
        names = tests_of(*found[:2]) if found else None
        if names is None:
            continue
        for pattern in re.split("[:-]", found[2]):
            if not pattern:
                continue
            patterns += 1
            # GoogleTest knows * and ?, not [.
            if not fnmatch.filter(names, pattern.replace("[", "[[]")):
                print(f"{test['name']}: {pattern} matches no test")
                faults += 1
    print(f"{patterns} patterns")
    return faults > 0 or patterns < 20


if __name__ == "__main__":
    sys.exit(main())
