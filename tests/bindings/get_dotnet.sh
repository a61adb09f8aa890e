#!/bin/sh
# Puts a .NET Core 3.1 runtime into FOLDER (default: .cache/dotnet of the repository), for the tests of C#: 31 MB from the
# Python package index, whose package dotnetcore2 carries it. What is there already is not fetched again; an interrupted run
# leaves nothing behind. Needs python3 with pip.
set -eu

package="dotnetcore2==3.1.23"
root=$(cd "$(dirname "$0")/../.." && pwd)
folder=${1:-$root/.cache/dotnet}

say() { echo ".NET: $*"; }

if [ "$(cat "$folder/package" 2>/dev/null)" = "$package" ]; then
  say "$folder is up to date"
  exit 0
fi
rm -rf "$folder"
trap 'rm -rf "$folder"' EXIT
trap 'exit 1' HUP INT TERM
say "fetching $package"
mkdir -p "$(dirname "$folder")"
python3 -m pip --quiet --disable-pip-version-check install --no-deps --only-binary :all: --target "$folder" "$package"
chmod +x "$folder/dotnetcore2/bin/dotnet"
echo "$package" >"$folder/package"
trap - EXIT
say "$folder is ready"
