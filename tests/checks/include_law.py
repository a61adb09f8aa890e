#!/usr/bin/env python3
"""The include law: which folder may include which.

usage: include_law.py ROOT

A folder may include itself, what its row names, and what the rows of those name (a public dependency is passed on). A
row that names a file gives only that file, with what its folder includes. docs/dev/folders.md shows the same table,
and this check compares them. Includes in quotes are written from the root of the repository.

The files of a folder include each other without circles; a header, the source and the -inl.h of its
name count as one.
"""
import os
import re
import sys

import sources

# folder -> what it may include. Folders stand in the order in which data passes through them.
LAW = {
    "core/base": [],
    "core/graph": ["core/base"],
    "core/ops/base": ["core/graph"],
    "core/ops/gradients": ["core/ops/base"],
    "core/ops/image": ["core/ops/base"],
    "core/ops/ml": ["core/ops/base"],
    "core/ops/signal": ["core/ops/base"],
    "core/ops/strings": ["core/ops/base"],
    "core/ops/plain": ["core/ops/image", "core/ops/ml", "core/ops/signal", "core/ops/strings"],
    "core/ops": ["core/ops/gradients", "core/ops/plain"],
    "core/mesh": ["core/graph"],
    "core/schedule": ["core/base"],
    "core/comm": ["core/base"],
    "core/comm/mpi": ["core/comm/mpi_table.h"],
    "core/exec": ["core/comm"],
    "core/ranks": ["core/exec", "core/mesh", "core/schedule"],
    "core/passes/base": ["core/ops", "core/mesh", "core/exec/program.h", "core/exec/kernel.h",
                         "core/exec/store_keys.h"],
    "core/passes/normalize": ["core/passes/base"],
    "core/passes/raise": ["core/passes/normalize"],
    "core/passes/shard": ["core/passes/base"],
    "core/passes/adapt": ["core/passes/base"],
    "core/passes/stage": ["core/passes/shard", "core/schedule"],
    "core/passes/plain": ["core/passes/raise"],
    "core/passes/lower": ["core/passes/base"],
    "core/passes": ["core/passes/adapt", "core/passes/stage", "core/passes/plain", "core/passes/lower", "core/ranks/stage_section.h"],
    "core/passes/train": ["core/passes"],
    "core/text": ["core/base"],
    "core/model": ["core/text", "importers/onnx", "importers/gguf", "importers/huggingface"],
    "core/generate": ["core/passes", "core/ranks", "core/text"],
    "core/quantize": ["core/generate", "importers/onnx"],
    "core/train/checkpoint": ["core/base"],
    "core/train/data": ["core/text"],
    "core/train/log": ["core/train/checkpoint"],
    "core/train/adapters": ["core/passes", "core/train/checkpoint"],
    "core/train": ["core/passes/train", "core/train/data", "core/train/log", "core/train/adapters", "core/ranks"],
    "core/plan/machine": ["core/base"],
    "core/plan/shape": ["importers/decoder", "importers/onnx", "core/passes"],
    "core/plan/price": ["core/plan/machine", "core/passes"],
    "core/plan/stages": ["core/plan/price", "core/plan/shape", "core/passes/train"],
    "core/plan/simulate": ["core/plan/stages", "core/schedule"],
    "core/plan/search": ["core/plan/simulate"],
    "core/plan/measure": ["core/plan/machine", "core/passes", "core/exec"],
    "core/plan/generate": ["core/plan/price", "core/plan/shape"],
    "kernels/reference/base": ["core/exec/kernel.h"],
    "kernels/reference/image": ["kernels/reference/base"],
    "kernels/reference/ml": ["kernels/reference/base"],
    "kernels/reference/signal": ["kernels/reference/base"],
    "kernels/reference/strings": ["kernels/reference/base", "core/text"],
    "kernels/reference/plain": ["kernels/reference/image", "kernels/reference/ml", "kernels/reference/signal",
                                "kernels/reference/strings"],
    "kernels/reference": ["kernels/reference/plain"],
    "kernels/cpu/simd": ["core/exec/kernel.h"],
    "kernels/cpu/rows": ["kernels/cpu/simd"],
    "kernels/cpu/gemm": ["kernels/cpu/rows"],
    "kernels/cpu/linear": ["kernels/cpu/gemm"],
    "kernels/cpu/attention": ["kernels/cpu/linear"],
    "kernels/cpu/image": ["kernels/cpu/linear"],
    "kernels/cpu/recurrent": ["kernels/cpu/linear"],
    "kernels/cpu/training": ["kernels/cpu/recurrent"],
    "kernels/cpu": ["kernels/cpu/attention", "kernels/cpu/image", "kernels/cpu/recurrent", "kernels/cpu/training"],
    "kernels/cuda": ["core/exec", "kernels/cuda/kernels/linear.h"],
    "kernels/cuda/kernels": ["kernels/cuda/fault_word.h", "kernels/cuda/peer_sums.h", "core/base/token_weight.h",
                             "kernels/emulated/cuda_language.h", "kernels/emulated/instructions.h"],
    "kernels/cuda/launch": ["kernels/cuda", "kernels/cuda/kernels"],
    "kernels/cuda/plugin": ["kernels/cuda/plugin.h"],
    "kernels/emulated": ["core/base", "kernels/cuda/driver.h", "kernels/cuda/nccl.h", "kernels/cuda/plugin.h"],
    "importers/onnx": ["core/graph"],
    "importers/decoder": ["core/base"],
    "importers/gguf": ["importers/decoder"],
    "importers/huggingface": ["importers/decoder"],
    "serving": ["core/generate"],
    "bindings/memory": [],
    "bindings/c": ["serving", "core/model", "core/train/adapters", "core/plan/measure", "kernels/reference/reference.h",
                   "kernels/cpu/cpu.h", "kernels/cuda/cuda_device.h", "kernels/cuda/launch/register.h"],
    "bindings/c/train": ["bindings/c", "core/train"],
    "bindings/c/quantize": ["bindings/c", "core/quantize", "core/train/data"],
    "bindings/c/plan": ["bindings/c/train", "core/plan/search", "core/plan/generate"],
    "bindings/absent": ["bindings/c", "bindings/server/plait_server.h", "core/ops/plain/register.h", "core/ops/gradients/gradients.h",
                        "kernels/cpu/image/register.h", "kernels/cpu/training/register.h", "kernels/reference/plain/register.h"],
    "serving/http/base": ["bindings/c/plait.h", "bindings/c/plait.hpp"],
    "serving/http/wires": ["serving/http/base"],
    "serving/http/page": [],
    "serving/http": ["serving/http/wires", "serving/http/page"],
    "bindings/server": ["serving/http"],
    "bindings/swig": ["bindings/c/plait.h", "bindings/server/plait_server.h"],
    "bindings/cli": ["bindings/c/plait.h", "bindings/c/plait.hpp", "bindings/server/plait_server.h"],
    "samples": ["bindings/c/plait.h", "bindings/c/plait.hpp"],
    "tests/bindings": ["bindings/c/plait.h", "bindings/c/plait.hpp", "bindings/server/plait_server.h"],
}
# A file's own rules come before its folder's: the public headers include nothing else, as they do once they are installed.
FILE_LAW = {"bindings/c/plait.h": [], "bindings/c/plait.hpp": ["bindings/c/plait.h"],
            "bindings/server/plait_server.h": ["bindings/c/plait.h"]}
FREE = "tests"  # may include anything
# The installed headers are included by their plain names where a user of the installed library would do so, and what samples share
# by its own.
PLAIN = {"plait.h": "bindings/c/plait.h", "plait.hpp": "bindings/c/plait.hpp", "sample.h": "samples/c/sample.h"}
PLAIN_IN = ("samples", "bindings/c/plait.hpp", "bindings/server/plait_server.h")
# Headers of third parties stay in the folders that wrap them; <iostream>, which sets up streams of the whole process,
# stays out of the library. (begins with, folder)
WRAPPED = [("hwy/", "kernels/cpu"), ("google/protobuf/", "importers/onnx"), ("onnx-ml.pb.h", "importers"),
           ("CLI/", "bindings/cli"), ("Eigen/", "core/quantize"), ("mpi.h", "core/comm/mpi"),
           ("immintrin.h", "kernels/cpu"), ("iostream", "bindings/cli")]

# A host that brings a Protocol Buffers of its own.
HOST = "tests/bindings/c/host_protobuf.cpp"

INCLUDE = re.compile(r'^\s*#\s*include\s*(["<])([^">]+)[">]')
ROW = re.compile(r"^\| `([a-z/]+)` \| (.*?) \|")


def folder_of(path):
    """The folder of the law that a path belongs to; the longest one, so that tests/bindings is not tests."""
    fitting = [name for name in [*LAW, FREE] if path.startswith(name + "/")]
    return max(fitting, key=len, default=None)


def allowed(folder, law=None):
    """All that a folder may include: names of folders and of files."""
    law = LAW if law is None else law
    out, todo = set(), [folder]
    while todo:
        entry = todo.pop()
        if entry in out:
            continue
        out.add(entry)
        # A single file brings what its folder may include, not the folder.
        home = entry if entry in law else os.path.dirname(entry)
        if home.startswith("bindings") and home != entry:
            continue  # a public header includes nothing
        todo += law.get(home, [])
    return out


def problem_of(path, quote, name, root):
    """What is wrong with an include, or None."""
    if quote == "<" or any(name.startswith(start) for start, _ in WRAPPED):
        for start, home in WRAPPED:
            if name.startswith(start) and not path.startswith(home + "/") and folder_of(path) != FREE and path != HOST:
                return f"<{name}> is for {home}"
        return None
    if name in PLAIN and path.startswith(PLAIN_IN):
        name = PLAIN[name]
    if not os.path.exists(os.path.join(root, name)):
        return f'"{name}" is not a path from the root of the repository'
    folder = folder_of(path)
    if folder == FREE:
        return None
    if path in FILE_LAW:
        return None if name in FILE_LAW[path] else f'"{name}": a public header has to stand alone'
    target = folder_of(name)
    if target is None:
        return f'"{name}": its folder has no row in the law'
    if target == folder or {target, name} & allowed(folder):
        return None
    return f'"{name}": {folder} may include {", ".join(LAW[folder]) or "nothing"} and what those may'


def documented(root):
    """The table of docs/dev/folders.md: folder -> what it may include."""
    rows = {}
    for line in sources.lines(root, "docs/dev/folders.md"):
        found = ROW.match(line)
        if found:
            rows[found[1]] = re.findall(r"`([^`]+)`", found[2])
    return rows


def circles(includes):
    """The circles of a graph (name -> set of names), each once, as lists of names from the smallest on."""
    found, done = set(), set()

    def visit(name, path):
        if name in path:
            circle = path[path.index(name):]
            first = circle.index(min(circle))
            found.add(tuple(circle[first:] + circle[:first]))
        elif name not in done:
            for other in sorted(includes.get(name, ())):
                visit(other, [*path, name])
            done.add(name)

    for name in sorted(includes):
        visit(name, [])
    return sorted(map(list, found))


def main(root):
    problems, checked = [], 0
    within = {}  # file without its ending -> the same of its folder's files that it includes
    for path in sources.files(root, sources.CPP):
        checked += 1
        if folder_of(path) is None:
            problems.append(f"{path}: its folder has no row in the law (tests/checks/include_law.py)")
            continue
        for number, line in enumerate(sources.lines(root, path), 1):
            found = INCLUDE.match(line)
            problem = found and problem_of(path, found[1], found[2], root)
            if problem:
                problems.append(f"{path}:{number}: {problem}")
            if found and found[1] == '"' and folder_of(found[2]) == folder_of(path) != FREE:
                unit, other = (os.path.splitext(name)[0].removesuffix("-inl") for name in (path, found[2]))
                if unit != other:
                    within.setdefault(unit, set()).add(other)
    problems += [f"{' -> '.join([*circle, circle[0]])}: files that include each other in a circle"
                 for circle in circles(within)]
    shown = documented(root)
    for folder in sorted({*LAW, *shown}):
        if shown.get(folder) != LAW.get(folder):
            problems.append(f"docs/dev/folders.md: {folder} includes {shown.get(folder)}; the law: {LAW.get(folder)}")
    sources.finish(checked, problems)


if __name__ == "__main__":
    main(sys.argv[1])
