#!/usr/bin/env python3
"""The conventions of plait.h and plait_server.h, as plait.i wants to be told of them: which types are handles, which are structs that the
library fills, and which parameters belong together. So no list has to grow with the header.

usage: conventions.py HEADER... > conventions.i
"""
import re
import sys

# The second of two parameters, if it counts what the first points to.
COUNT = r"int64_t (\w*count|length|rank|bytes|size)\b"
PAIRS = (
    ("text", r"const char\* (\w+)"),
    ("memory", r"(?:const )?void\* (\w+)"),
    ("array", r"const (int32_t|int64_t|float|double)\* (\w+)"),
    ("handles", r"(plait_\w+)\* const\* (\w+)"),
    ("results", r"(plait_\w+)\*\* (\w+)"),
)


def without_comments(text):
    return re.sub(r"/\*.*?\*/", " ", text, flags=re.DOTALL)


def header_of(path):
    """The declarations, on one line each and with single blanks."""
    with open(path) as file:
        return re.sub(r"\s+", " ", without_comments(file.read()))


def functions(path):
    """The names of all functions, in order."""
    return re.findall(r"PLAIT_API [^;]*?\b(plait_\w+)\(", header_of(path))


def handles(path):
    return re.findall(r"typedef struct (plait_\w+) \1;", header_of(path))


def structs(path):
    """Those that the library fills: (name, fields)."""
    return re.findall(r"typedef struct (plait_\w+) \{ int64_t struct_size;([^}]*)\}", header_of(path))


def conventions(paths):
    for name in (name for path in paths for name in handles(path)):
        yield f"%plait_handle({name})"
    for name, fields in (one for path in paths for one in structs(path)):
        yield f"%plait_struct({name}, {'true' if '*' in fields else 'false'})"
    declarations = " ".join(" ".join(re.findall(r"PLAIT_API [^;]*;", header_of(path))) for path in paths)
    for kind, first in PAIRS:
        for words in sorted(set(re.findall(rf"{first}, {COUNT}", declarations))):
            yield f"%plait_{kind}({', '.join(words)})"


if __name__ == "__main__":
    print("\n".join(conventions(sys.argv[1:])))
