#!/usr/bin/env python3
"""No source file is longer than 600 lines: what grows beyond that has more than one subject. A public interface is one file.

usage: file_sizes.py ROOT
"""
import sys

import sources

LIMIT = 600
ENDINGS = (*sources.CPP, ".rs", ".py", ".sh", ".txt", ".cmake")
# Data, and the interface that hosts include.
EXEMPT = ("tests/fixtures/corpus.txt", "bindings/c/plait.h")


def main(root):
    problems, checked = [], 0
    for path in sources.files(root, ENDINGS) + ["run"]:
        count = len(sources.lines(root, path) or [])
        checked += 1
        if count > LIMIT and path not in EXEMPT:
            problems.append(f"{path}: {count} lines, at most {LIMIT}")
    sources.finish(checked, problems)


if __name__ == "__main__":
    main(sys.argv[1])
