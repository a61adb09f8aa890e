#!/bin/sh
# Makes a Python environment with ONNX Runtime and the gguf package in FOLDER (default: .cache/onnxruntime of the repository),
# for onnxruntime_test.py and converted_test.py: 40 MB from the package index. What is there already is not fetched again; an
# interrupted run leaves nothing behind. Needs python3 with venv and pip.
set -eu

packages="onnxruntime==1.32.0 numpy==2.4.6 gguf==0.19.0 PyYAML==6.0.4 tqdm==4.70.1"
root=$(cd "$(dirname "$0")/../.." && pwd)
folder=${1:-$root/.cache/onnxruntime}

say() { echo "ONNX Runtime: $*"; }

if [ "$(cat "$folder/packages" 2>/dev/null)" = "$packages" ]; then
  say "$folder is up to date"
  exit 0
fi
rm -rf "$folder"
trap 'rm -rf "$folder"' EXIT
trap 'exit 1' HUP INT TERM
say "fetching $packages"
mkdir -p "$(dirname "$folder")"
python3 -m venv "$folder"
# shellcheck disable=SC2086 # a word a package
"$folder/bin/python" -m pip --quiet --disable-pip-version-check install --no-compile --no-deps --only-binary :all: $packages
echo "$packages" >"$folder/packages"
trap - EXIT
say "$folder is ready"
