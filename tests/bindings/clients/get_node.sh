#!/bin/sh
# Puts OpenAI's client for Node, and the load generator autocannon, into FOLDER (default: .cache/node of the repository), as
# package-lock.json has them: 42 MB from npm's registry. What is there already is not fetched again; an interrupted run leaves
# nothing behind. Needs npm.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
folder=${1:-$here/../../../.cache/node}

say() { echo "Node: $*"; }

if cmp -s "$here/package-lock.json" "$folder/package-lock.json"; then
  say "$folder is up to date"
  exit 0
fi
rm -rf "$folder"
trap 'rm -rf "$folder"' EXIT
trap 'exit 1' HUP INT TERM
say "fetching what package-lock.json lists"
mkdir -p "$folder"
cp "$here/package.json" "$folder"
cp "$here/package-lock.json" "$folder/lock"
mv "$folder/lock" "$folder/npm-shrinkwrap.json"
npm ci --prefix "$folder" --silent --no-audit --no-fund --ignore-scripts
mv "$folder/npm-shrinkwrap.json" "$folder/package-lock.json"
trap - EXIT
say "$folder is ready"
