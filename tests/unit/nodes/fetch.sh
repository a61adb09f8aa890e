#!/bin/sh
# Fetches the ONNX standard's own node tests into FOLDER (default: .cache/onnx-node-cases of the repository): a folder a
# case, 1,765 of them, 8 MB of files. They are in the onnx package up to the version below; later ones do without. What
# is there already is not fetched again; an interrupted run leaves nothing behind. Needs python3 with pip.
set -eu

version=1.22.0
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
python3 -m pip --quiet --disable-pip-version-check download --no-deps --only-binary :all: --dest "$work" \
  "onnx==$version"
python3 - "$work"/onnx-*.whl "$work/cases" <<'END'
import pathlib, sys, zipfile
wheel, folder = sys.argv[1:]
inside = "onnx/backend/test/data/node/"
with zipfile.ZipFile(wheel) as archive:
    for name in archive.namelist():
        if not name.startswith(inside) or name.endswith("/"):
            continue
        path = pathlib.Path(folder, name[len(inside):])
        if ".." in path.parts:
            sys.exit(f"{wheel}: {name} leads out of its folder")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(archive.read(name))
END
echo "$version" >"$work/cases/version"
rm -rf "$folder"
mv "$work/cases" "$folder"
say "$(find "$folder" -name model.onnx | wc -l) cases in $folder"
