#!/bin/sh
# Makes the ONNX standard's own node tests in FOLDER (default: .cache/onnx-node-cases of the repository): a folder a case, 1,884
# of them, 10 MB of files, written by the scripts of the onnx package of the version below. What is there already is not made
# again; an interrupted run leaves nothing behind. Needs python3 with venv and pip.
set -eu

version=1.23.2
packages="onnx==$version numpy==2.4.6 ml_dtypes==0.6.0"
root=$(cd "$(dirname "$0")/../../.." && pwd)
folder=${1:-$root/.cache/onnx-node-cases}

say() { echo "node tests: $*"; }

if [ "$(cat "$folder/version" 2>/dev/null)" = "$version" ]; then
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
"$work/python/bin/python" -m pip --quiet --disable-pip-version-check install --only-binary :all: $packages
say "writing its cases"
"$work/python/bin/python" -W ignore - "$work" <<'END'
import argparse
import sys
import types

from onnx.backend.test import cmd_tools
from onnx.backend.test.case import node

# The package's writer, which is for cases of whole models, given those of nodes.
cmd_tools.model_test = types.SimpleNamespace(collect_testcases=lambda: node.collect_testcases(None))
cmd_tools.generate_data(argparse.Namespace(output=sys.argv[1]))
END
echo "$version" >"$work/node/version"
rm -rf "$folder"
mv "$work/node" "$folder"
say "$(find "$folder" -name model.onnx | wc -l) cases in $folder"
