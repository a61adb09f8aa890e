#!/usr/bin/env python3
"""Makes the release archive of a build: what cmake --install lays down, the licence, those of all that is linked in, and a list of
it (sbom.spdx.json, SPDX 2.3).

usage: package.py ROOT BUILD CARGO OUT_DIRECTORY
"""
import glob
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile

# What the libraries hold of Debian's packages: headers that are compiled in, and the C++ runtime.
HEADERS = ("hwy/highway.h", "nlohmann/json.hpp", "CLI/CLI.hpp", "eigen3/Eigen/Cholesky", "histedit.h", "bsd/bsd.h", "curses.h", "md5.h")


def output(*words):
    return subprocess.run(words, check=True, capture_output=True, text=True).stdout


def crates(root, cargo):
    """(name, version, licence, files) of each crate that is linked."""
    found = {}
    for folder in ("core/text/rust", "serving/http/rust"):
        manifest = os.path.join(root, folder, "Cargo.toml")
        metadata = json.loads(output(cargo, "metadata", "--format-version", "1", "--locked", "--filter-platform",
                                     "x86_64-unknown-linux-gnu", "--manifest-path", manifest))
        found.update({(package["name"], package["version"]): package for package in metadata["packages"]})
    for _, package in sorted(found.items()):
        if package["source"] is None:
            continue  # the project's own
        folder = os.path.dirname(package["manifest_path"])
        files = [path for pattern in ("LICEN[SC]E*", "COPYING*", "NOTICE*") for path in glob.glob(os.path.join(folder, pattern))
                 if os.path.isfile(path)]
        yield package["name"], package["version"], package["license"] or "NOASSERTION", files


def debian():
    """The same of Debian's packages, whose copyright files contain everything."""
    names = [output("dpkg", "-S", f"/usr/include/{header}").split(":")[0] for header in HEADERS]
    runtime = output("dpkg", "-S", os.path.realpath(output("g++", "-print-file-name=libstdc++.a").strip())).split(":")[0]
    for name in sorted({*names, runtime}):
        version = output("dpkg-query", "-W", "-f", "${Version}", name)
        yield name, version, "NOASSERTION", [f"/usr/share/doc/{name}/copyright"]


def protobuf(root):
    header = os.path.join(root, ".deps/protobuf/include/google/protobuf/stubs/common.h")
    with open(header) as file:
        number = int(re.search(r"define GOOGLE_PROTOBUF_VERSION (\d+)", file.read())[1])
    version = f"{number // 1000000}.{number // 1000 % 1000}.{number % 1000}"
    return "protobuf", version, "BSD-3-Clause", [os.path.join(root, ".deps/protobuf/LICENSE.protobuf")]


def list_of(version, parts):
    """As SPDX."""
    def spdx(number, name, version_of, licence):
        return {"SPDXID": f"SPDXRef-{number}", "name": name, "versionInfo": version_of, "downloadLocation": "NOASSERTION",
                "licenseDeclared": re.sub(r"/", " OR ", licence), "filesAnalyzed": False}
    packages = [spdx(0, "plait", version, "Apache-2.0")]
    packages += [spdx(number, *part[:3]) for number, part in enumerate(parts, 1)]
    digest = hashlib.sha256(json.dumps(packages).encode()).hexdigest()
    return {"spdxVersion": "SPDX-2.3", "dataLicense": "CC0-1.0", "SPDXID": "SPDXRef-DOCUMENT", "name": f"plait-{version}",
            "documentNamespace": f"urn:plait:sbom:{digest}",
            "creationInfo": {"created": "1970-01-01T00:00:00Z", "creators": ["Tool: bindings/c/package.py"]}, "packages": packages,
            "relationships": [{"spdxElementId": "SPDXRef-0", "relationshipType": "CONTAINS", "relatedSpdxElement": f"SPDXRef-{number}"}
                              for number in range(1, len(packages))]}


def main():
    root, build, cargo, out = sys.argv[1:]
    with open(os.path.join(build, "CMakeCache.txt")) as file:
        version = re.search(r"^CMAKE_PROJECT_VERSION:STATIC=(.*)$", file.read(), re.MULTILINE)[1]
    name = f"plait-{version}-linux-x86_64"
    parts = [*crates(root, cargo), *debian(), protobuf(root)]
    with tempfile.TemporaryDirectory() as folder:
        stage = os.path.join(folder, name)
        output("cmake", "--install", build, "--prefix", stage, "--strip")
        shutil.copy(os.path.join(root, "LICENSE"), stage)
        licences = os.path.join(stage, "share/doc/plait/licences")
        for part, part_version, _, files in parts:
            if not files:
                print(f"{part} {part_version} comes without a licence file")
            os.makedirs(os.path.join(licences, f"{part}-{part_version}"))
            for path in files:
                shutil.copy(path, os.path.join(licences, f"{part}-{part_version}"))
        with open(os.path.join(stage, "share/doc/plait/sbom.spdx.json"), "w") as file:
            json.dump(list_of(version, parts), file, indent=1)
        os.makedirs(out, exist_ok=True)
        archive = os.path.join(out, name + ".tar.gz")
        with tarfile.open(archive, "w:gz") as tar:
            tar.add(stage, name, filter=lambda entry: entry.replace(uid=0, gid=0, uname="", gname="", mtime=0, deep=False))
    print(f"{archive}: {os.path.getsize(archive) >> 20} MiB, {len(parts)} parts")


if __name__ == "__main__":
    main()
