#!/usr/bin/env python3
"""What no tool formats: width, tabs, notes to self, and names that belong to one machine.

usage: style.py ROOT
"""
import re
import sys

import sources

WIDTH = 140  # the style says 118; this is where a line is no longer readable side by side
WIDE = (*sources.CPP, ".py", ".rs", ".sh", ".txt", ".cmake", ".md")
SOURCE = (*sources.CPP, ".py", ".rs", ".sh")
# Texts of models, and files that tools write; chat_cases.cpp holds chat templates as their authors wrote them.
DATA = re.compile(r"^tests/unit/text/chat_cases\.cpp$|^tests/fixtures/.*\.(txt|jinja)$|(^|/)requirements[^/]*\.txt$|"
                  r"\.json$|(^|/)Cargo\.lock$")
ALLOWED_TABS = re.compile(r"(^|/)Makefile$")
NOTES = re.compile(r"\b(TO" r"DO|FIX" r"ME|XX" r"X|HA" r"CK)\b")
# Paths of one machine: of a home, of a working copy, of a temporary folder with a name of its own.
MACHINE = re.compile(r"(?<![\w.$}])/(?:home|work|root|Users|mnt)/[\w.]+|(?<![\w.$}])/tmp/\w+")
# Where packages come from is the business of the tools' own configuration.
HOSTS = re.compile(r"\b(?:files\.pythonhosted\.org|pypi\.org|registry\.npmjs\.org|static\.crates\.io|index\.crates\.io|"
                   r"deb\.debian\.org|artifactory|jfrog|proxy\.golang\.org|repo1?\.maven\.org)", re.IGNORECASE)


def problems_of(path, number, line):
    where = f"{path}:{number}"
    table_row = path.endswith(".md") and line.startswith("|")
    if path.endswith(WIDE) and len(line) > WIDTH and not table_row:
        yield f"{where}: {len(line)} columns, at most {WIDTH}"
    if "\t" in line and not ALLOWED_TABS.search(path):
        yield f"{where}: a tab"
    if line != line.rstrip() and path.endswith(SOURCE):
        yield f"{where}: blanks at the end"
    for pattern, what, endings in ((NOTES, "a note to self", SOURCE), (MACHINE, "a path of one machine", ("",)),
                                   (HOSTS, "a package registry's host", ("",))):
        found = pattern.search(line)
        if found and path.endswith(endings):
            yield f"{where}: {what}: {found[0]}"


def main(root):
    problems, checked = [], 0
    for path in sources.files(root):
        text = None if DATA.search(path) or path == "tests/checks/style.py" else sources.lines(root, path)
        if text is None:
            continue
        checked += 1
        for number, line in enumerate(text, 1):
            problems += problems_of(path, number, line)
    sources.finish(checked, problems)


if __name__ == "__main__":
    main(sys.argv[1])
