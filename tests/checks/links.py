#!/usr/bin/env python3
"""Links of the documentation lead to files and headings that exist.

usage: links.py ROOT
"""
import os
import re
import sys

import sources

LINK = re.compile(r"\]\(([^)\s]+)\)")


def anchors(root, path):
    """The names that headings have in links."""
    titles = [line.lstrip("#").strip().lower() for line in sources.lines(root, path) if line.startswith("#")]
    return {re.sub(r"[^\w\- ]", "", title).replace(" ", "-") for title in titles}


def main(root):
    problems, checked = [], 0
    for path in sources.files(root, (".md",)):
        for number, line in enumerate(sources.lines(root, path), 1):
            for link in LINK.findall(line):
                if re.match(r"[a-z]+:", link):
                    continue
                checked += 1
                name, _, anchor = link.partition("#")
                target = os.path.normpath(os.path.join(os.path.dirname(path), name)) if name else path
                if not os.path.exists(os.path.join(root, target)):
                    problems.append(f"{path}:{number}: there is no {target}")
                elif anchor and target.endswith(".md") and anchor not in anchors(root, target):
                    problems.append(f"{path}:{number}: {target} has no heading {anchor}")
    sources.finish(checked, problems)


if __name__ == "__main__":
    main(sys.argv[1])
