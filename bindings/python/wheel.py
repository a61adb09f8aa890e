#!/usr/bin/env python3
"""Makes a wheel of the package that a build has: one for all versions of CPython from 3.11 on, with the library and its plug-ins.

usage: wheel.py BUILD OUT_DIRECTORY

The format: packaging.python.org/specifications/binary-distribution-format.
"""
import base64
import glob
import hashlib
import os
import re
import subprocess
import sys
import zipfile

LICENSE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "LICENSE")
PLUGINS = ("plait_cuda.so", "plait_mpi.so")  # next to the library, if they were built
METADATA = """Metadata-Version: 2.4
Name: plait
Version: {version}
Summary: Reads ONNX language models, generates from them and fine-tunes them, over the processors that there are
License-Expression: Apache-2.0
License-File: LICENSE
Requires-Python: >=3.11
Requires-Dist: numpy>=1.26
Provides-Extra: dtypes
Requires-Dist: ml_dtypes; extra == "dtypes"
"""
WHEEL = """Wheel-Version: 1.0
Generator: plait
Root-Is-Purelib: false
Tag: {tag}
"""


def platform_of(library):
    """manylinux with the newest version of glibc that the library asks for (PEP 600)."""
    symbols = subprocess.run(["objdump", "-T", library], check=True, capture_output=True, text=True).stdout
    newest = max(tuple(map(int, one)) for one in re.findall(r"GLIBC_(\d+)\.(\d+)", symbols))
    return f"manylinux_{newest[0]}_{newest[1]}_{os.uname().machine}"


def files_of(build):
    """(name in the wheel, path)"""
    package = os.path.join(build, "bindings", "python", "plait")
    for path in sorted(glob.glob(os.path.join(package, "*"))):
        if os.path.isfile(path):
            yield f"plait/{os.path.basename(path)}", os.path.realpath(path)
    for path in PLUGINS:
        path = os.path.join(build, "bindings", "c", path)
        if os.path.exists(path):
            yield f"plait/{os.path.basename(path)}", path


def main():
    build, out = sys.argv[1:3]
    library = os.path.join(build, "bindings", "c", "libplait.so.0")
    version = re.search(r"CMAKE_PROJECT_VERSION:STATIC=(\S+)", open(os.path.join(build, "CMakeCache.txt")).read())[1]
    tag = f"cp311-abi3-{platform_of(library)}"
    os.makedirs(out, exist_ok=True)
    info, record = f"plait-{version}.dist-info", []
    wheel = os.path.join(out, f"plait-{version}-{tag}.whl")
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as archive:

        def add(name, content):
            archive.writestr(zipfile.ZipInfo(name, (2020, 1, 1, 0, 0, 0)), content, zipfile.ZIP_DEFLATED)
            digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
            record.append(f"{name},sha256={digest},{len(content)}\n")

        for name, path in files_of(build):
            with open(path, "rb") as file:
                add(name, file.read())
        with open(LICENSE, "rb") as file:
            add(f"{info}/licenses/LICENSE", file.read())
        add(f"{info}/METADATA", METADATA.format(version=version).encode())
        add(f"{info}/WHEEL", WHEEL.format(tag=tag).encode())
        archive.writestr(zipfile.ZipInfo(f"{info}/RECORD", (2020, 1, 1, 0, 0, 0)), "".join(record) + f"{info}/RECORD,,\n")
    print(wheel)


if __name__ == "__main__":
    main()
