#!/bin/sh
# Makes the Python environments of the engines that `./run bench generate` and `./run bench train` compare Plait with. What is
# there already is not made again; the first build of llama.cpp takes some minutes.
#
#   setup_peers.sh [--all]       --all: also OpenVINO GenAI
#   setup_peers.sh --torch       only PyTorch
#
# Environment: PLAIT_PEERS   where they lie (default: .venv-peers of this repository)
set -eu

here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../../.." && pwd)
base=${PLAIT_PEERS:-$root/.venv-peers}
llama=llama_cpp_python-0.3.36
# llama.cpp is built for this very processor: another one needs another build.
cpu=$(grep -m1 '^flags' /proc/cpuinfo | cksum | cut -d' ' -f1)
wheels=$base/wheels-$cpu

case ${1:-} in
    '' | --all | --torch) ;;
    -h | --help) sed -n '2,/^set/s/^# \{0,1\}//p' "$0"; exit 0 ;;
    *) echo "setup_peers.sh: unknown argument $1 (try --help)" >&2; exit 1 ;;
esac

# The file that marks that $base/NAME was made from the requirements as they are now, on this kind of processor.
stamp() {
    echo "$base/$1/.ready-$cpu-$(cksum <"$here/requirements-$1.txt" | cut -d' ' -f1)"
}

new_env() {
    rm -rf "${base:?}/$1"
    mkdir -p "$base"
    echo '*' >"$base/.gitignore"
    python3 -m venv "$base/$1" || {
        echo "setup_peers.sh: python3 cannot make a virtual environment: apt-get install python3-venv" >&2
        exit 1
    }
    "$base/$1/bin/python" -m pip --disable-pip-version-check install -q -r "$here/requirements-$1.txt"
}

# llama.cpp's AMX code relies on stores to a tile configuration that g++ 12 drops, because its _tile_loadconfig declares
# only 8 of the 64 bytes as read. An empty statement that reads them all, put before the call, keeps them.
mend() {
    sed -i 's|^\( *\)_tile_loadconfig(&tc);|\1asm volatile("" : : "m"(tc) : "memory"); _tile_loadconfig(\&tc);|' \
        "$1/vendor/llama.cpp/ggml/src/ggml-cpu/amx/mmq.cpp"
}

build_llama() {
    [ ! -f "$wheels/built" ] || return 0
    echo "Building llama.cpp for this processor (five to fifteen minutes)"
    rm -rf "$wheels"
    mkdir -p "$wheels/source"
    pip="$base/peers/bin/python -m pip --disable-pip-version-check"
    $pip download -q --no-deps --no-binary llama-cpp-python -d "$wheels/source" llama-cpp-python==0.3.36
    tar -xzf "$wheels/source/$llama.tar.gz" -C "$wheels/source"
    mend "$wheels/source/$llama"
    CMAKE_ARGS='-DGGML_NATIVE=ON -DLLAVA_BUILD=OFF' nice $pip wheel -q --no-deps -w "$wheels" \
        "$wheels/source/$llama" &
    build=$!
    seconds=0
    while kill -0 "$build" 2>/dev/null; do
        sleep 2
        seconds=$((seconds + 2))
        [ $((seconds % 30)) -ne 0 ] || echo "  still building ($seconds s)"
    done
    wait "$build"
    rm -rf "$wheels/source"
    touch "$wheels/built"
}

if [ "${1:-}" = --torch ]; then
    [ ! -f "$(stamp torch)" ] || exit 0
    echo "Making the environment of PyTorch (PyPI's wheel brings CUDA's libraries: 7 GB)"
    new_env torch
    touch "$(stamp torch)"
    exit 0
fi
if [ ! -f "$(stamp peers)" ]; then
    echo "Making the environment of ONNX Runtime and llama.cpp"
    new_env peers
    build_llama
    "$base/peers/bin/python" -m pip --disable-pip-version-check install -q "$wheels"/*.whl
    touch "$(stamp peers)"
fi
if [ "${1:-}" = --all ] && [ ! -f "$(stamp openvino)" ]; then
    echo "Making the environment of OpenVINO GenAI"
    new_env openvino
    touch "$(stamp openvino)"
fi
