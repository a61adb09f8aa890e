#!/bin/sh
# Makes the ONNX standard's own tests in FOLDER (default: .cache/onnx-node-cases of the repository): a folder a case, of nodes
# 1,884, 10 MB of files, written by the scripts of the onnx package of the version below, and of models ("model_...") 149, 13 MB,
# which that package contains. What is there already is not made again; an interrupted run leaves nothing behind. Needs python3
# with venv and pip.
set -eu

version=1.23.2
packages="onnx==$version numpy==2.4.6 ml_dtypes==0.6.0"
root=$(cd "$(dirname "$0")/../../.." && pwd)
folder=${1:-$root/.cache/onnx-node-cases}

say() { echo "node tests: $*"; }

made="$version, with models"
if [ "$(cat "$folder/version" 2>/dev/null)" = "$made" ]; then
  say "$folder is up to date"
  exit 0
fi
mkdir -p "$(dirname "$folder")"
work=$(mktemp -d "$folder.work.XXXXXX")
trap 'rm -rf "$work"' EXIT
trap 'exit 1' HUP INT TERM

say "fetching onnx $version"
python3 -m venv "$work/python"
# shellcheck disable=SC2086 # a word a package
"$work/python/bin/python" -m pip --quiet --disable-pip-version-check install --no-compile --only-binary :all: $packages
say "writing its cases"
"$work/python/bin/python" -W ignore - "$work" <<'END'
import argparse
import pathlib
import shutil
import sys
import types

import numpy
import onnx
from onnx import numpy_helper
from onnx.backend.test import cmd_tools
from onnx.backend.test.case import node

# The package's writer, which is for cases of whole models, given those of nodes.
cmd_tools.model_test = types.SimpleNamespace(collect_testcases=lambda: node.collect_testcases(None))
cmd_tools.generate_data(argparse.Namespace(output=sys.argv[1]))

# The package's cases of models; nets of images have weights of one number, and what came out for an image that its runner makes.
data = pathlib.Path(onnx.__file__).parent / "backend/test/data"
out = pathlib.Path(sys.argv[1]) / "node"
for suite in ("simple", "pytorch-converted", "pytorch-operator"):
    for case in (data / suite).iterdir():
        shutil.copytree(case, out / f"model_{suite.replace('-', '_')}_{case.name.removeprefix('test_')}")
for net in (data / "light").glob("*.onnx"):
    case = out / f"model_{net.stem}"
    values = case / "test_data_set_0"
    values.mkdir(parents=True)
    shutil.copy(net, case / "model.onnx")
    shutil.copy(net.parent / f"{net.stem}_output_0.pb", values / "output_0.pb")
    graph = onnx.load(net).graph
    weights = {weight.name for weight in graph.initializer}
    for k, value in enumerate(one for one in graph.input if one.name not in weights):
        sizes = [dim.dim_value or 1 for dim in value.type.tensor_type.shape.dim]
        count = int(numpy.prod(sizes))
        image = (numpy.arange(count).reshape(sizes) / count).astype(numpy.float32)
        (values / f"input_{k}.pb").write_bytes(numpy_helper.from_array(image).SerializeToString())
END
echo "$made" >"$work/node/version"
rm -rf "$folder"
mv "$work/node" "$folder"
say "$(find "$folder" -name model.onnx | wc -l) cases in $folder"
