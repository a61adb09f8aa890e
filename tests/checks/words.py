#!/usr/bin/env python3
"""Words that readers of this field do not expect, in sources and docs.

usage: words.py ROOT [--count]

CONTRIBUTING.md ("Prose") says what to write instead. Each phrase may stand in as many lines as the table allows: those that
were there when the rule came. A line more fails; who rewrites some lowers the number (--count prints what there is).
"""
import re
import sys

import sources

# phrase, what to write instead, lines that may have it
WORDS = [
    (r"one behind the other", "consecutive, concatenated", 0),
    (r"the wish that", "a request to", 0),
    (r"\bfor ever\b", "forever, or without a limit", 0),
    (r"of which there", "(turn the sentence round)", 0),
    (r"(?<!there )\b(?:is|are|was|were) none\b", "there is no ..., -1 if none", 2),
    (r"\bbeside\b", "next to; with; asynchronous", 9),
    (r"\bbesides\b", "also", 0),
    (r"\b(?:whoever|nobody|somebody)\b", "name the subject", 0),
    (r"\bgoes? on\b", "continues, runs", 0),
    (r"\bbehind (?:it|them|that|this|the|a|each)\b", "after", 2),
    (r"\balone\b", "only", 3),
    (r"\bsays?\b", "contains, returns, specifies", 4),
    (r"\bor else\b|[,;:] else\b|\belse -1\b", "otherwise", 0),
    (r"\bcourier\b|\berrand\b|\bgraves?\b|\bbury\b", "comm thread, task, release", 0),
]
ENDINGS = (*sources.CPP, ".py", ".rs", ".sh", ".cmake", ".md", ".java", ".cs")
COMMENT = re.compile(r"//.*|^\s*#.*|\"[^\"]*\"|^\s*/?\*.*")
SKIPPED = re.compile(r"^tests/checks/words\.py$|^tests/unit/text/|^tests/fixtures/|^CONTRIBUTING\.md$")


def prose_of(path, line):
    """What people read of a line: all of a document's, comments and texts of a source's."""
    return line if path.endswith(".md") else " ".join(COMMENT.findall(line))


def main(root, count_only):
    found = [[] for _ in WORDS]
    checked = 0
    for path in sources.files(root, ENDINGS):
        text = None if SKIPPED.search(path) else sources.lines(root, path)
        if text is None:
            continue
        checked += 1
        for number, line in enumerate(text, 1):
            prose = prose_of(path, line)
            for rows, (pattern, _, _) in zip(found, WORDS):
                if re.search(pattern, prose, re.IGNORECASE):
                    rows.append(f"{path}:{number}")
    problems = []
    for rows, (pattern, instead, allowed) in zip(found, WORDS):
        if count_only:
            print(f"{len(rows):5} {pattern}")
        elif len(rows) > allowed:
            problems.append(f"{pattern!r} stands in {len(rows)} lines, {allowed} are allowed; write: {instead}. "
                            f"`git diff` shows which line is new; the last few by name: {', '.join(rows[-3:])}")
    sources.finish(checked, problems)


if __name__ == "__main__":
    main(sys.argv[1], "--count" in sys.argv)
