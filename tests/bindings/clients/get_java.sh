#!/bin/sh
# Puts OpenAI's client for Java, and what it needs, into FOLDER (default: .cache/java of the repository), as pom.xml has it: 81 MB from
# Maven's registry. What is there already is not fetched again; an interrupted run leaves nothing behind. Needs mvn.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
folder=${1:-$here/../../../.cache/java}

say() { echo "Java: $*"; }

if cmp -s "$here/pom.xml" "$folder/pom.xml"; then
  say "$folder is up to date"
  exit 0
fi
rm -rf "$folder"
trap 'rm -rf "$folder"' EXIT
trap 'exit 1' HUP INT TERM
say "fetching what pom.xml lists"
mkdir -p "$folder"
mvn -B -q -f "$here/pom.xml" dependency:copy-dependencies "-DoutputDirectory=$(cd "$folder" && pwd)"
cp "$here/pom.xml" "$folder"
trap - EXIT
say "$folder is ready"
