#!/bin/sh
# Makes a Python environment with what the bindings for Python need in FOLDER (default: .cache/python of the repository): a SWIG
# that knows CPython's stable interface, and for the tests NumPy, ml_dtypes, mypy, OpenAI's, Anthropic's and LangChain's clients,
# clients of HTTP/2 and certificates for them, jsonschema, Schemathesis and Playwright. 200 MB from the package index. What is
# there already is not fetched again; an interrupted run leaves nothing behind.
# Needs python3 with venv and pip.
set -eu

packages="swig==4.5.1 numpy==2.4.6 ml_dtypes==0.6.0 mypy==2.4.1 openai==3.54.0 anthropic==2.12.0 jsonschema==4.26.0 playwright==1.65.2
  h2==4.4.1 trustme==1.2.1 schemathesis==4.32.5 langchain-openai==1.7.4"
root=$(cd "$(dirname "$0")/../.." && pwd)
folder=${1:-$root/.cache/python}

say() { echo "Python: $*"; }

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
"$folder/bin/python" -m pip --quiet --disable-pip-version-check install --no-compile --only-binary :all: $packages
echo "$packages" >"$folder/packages"
trap - EXIT
say "$folder is ready"
