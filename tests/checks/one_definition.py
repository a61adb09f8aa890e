#!/usr/bin/env python3
"""A type or an inline function of a namespace is defined in one file.

    one_definition.py ROOT

Two files that define different types of one name compile and link, and then share whichever of the two std::vector<Name> the linker
keeps. What is in an unnamed namespace is the file's own, and is not looked at.
"""
import re
import sys
from collections import defaultdict
from pathlib import Path

# kernels/emulated stands for CUDA, whose names it has.
FOLDERS = ("core", "kernels/cpu", "kernels/reference", "kernels/cuda", "importers", "serving", "bindings")
OPENED = re.compile(r"^(?:inline )?namespace(?: ([\w:]+))? \{")
CLOSED = re.compile(r"^\}  // namespace")
TYPE = re.compile(r"^(?:struct|class|union|enum class|enum)(?: alignas\(\w+\))? (\w+)(?: final)?(?: : [^;]*)? \{")
INLINE = re.compile(r"^(?:inline|constexpr|template <[^>]*> (?:inline|constexpr)) .*?(\w+\(.*\))(?: const)?(?: noexcept)? \{")


def definitions(text):
    """Yields (name, line) of what is defined in named namespaces. Per-target code of Highway is one definition a target."""
    scopes = []
    for number, line in enumerate(text.splitlines(), 1):
        if opened := OPENED.match(line):
            if not line.rstrip().endswith("}"):
                scopes.append(opened.group(1))
        elif CLOSED.match(line):
            if scopes:
                scopes.pop()
        elif None not in scopes and "HWY_NAMESPACE" not in scopes:
            if found := TYPE.match(line) or INLINE.match(line):
                yield "::".join([*scopes, found.group(1)]), number


def main(root):
    places = defaultdict(dict)
    files = sorted(path for folder in FOLDERS for kind in ("h", "cpp") for path in (root / folder).rglob(f"*.{kind}"))
    for path in files:
        for name, line in definitions(path.read_text(errors="replace")):
            places[name].setdefault(str(path.relative_to(root)), line)
    problems = 0
    for name, where in sorted(places.items()):
        if len(where) > 1:
            problems += 1
            print(f"{name} is defined in " + " and ".join(f"{file}:{line}" for file, line in where.items()))
    print(f"{len(files)} files, {problems} problems")
    return problems > 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
