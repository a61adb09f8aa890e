#!/bin/sh
# Puts the JSON schemas of AWS' resources, 1,898 files of the package cfn-lint (MIT-0), into FOLDER (default: .cache/schemas of the
# repository). 6 MB from the package index. What is there already is not fetched again. Needs python3 with pip.
set -eu

package="cfn-lint==1.58.0"
root=$(cd "$(dirname "$0")/../.." && pwd)
folder=${1:-$root/.cache/schemas}

[ "$(cat "$folder/package" 2>/dev/null)" != "$package" ] || exit 0
rm -rf "$folder"
trap 'rm -rf "$folder"' EXIT
trap 'exit 1' HUP INT TERM
mkdir -p "$folder"
python3 -m pip --quiet --disable-pip-version-check download --no-deps --only-binary :all: --dest "$folder" "$package"
python3 -m zipfile -e "$folder"/*.whl "$folder/whole"
mv "$folder/whole/cfnlint/data/schemas/resources" "$folder/resources"
rm -rf "$folder/whole" "$folder"/*.whl
echo "$package" >"$folder/package"
trap - EXIT
