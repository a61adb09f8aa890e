#!/bin/sh
# Puts NVIDIA's compiler for CUDA into PREFIX (default: .deps/cuda of the repository), from the package index: 300 MB to fetch,
# of which 190 MB for the header of NCCL, and 300 MB on disk. Then
#   bin/nvcc, bin/cuobjdump    as links
#   include/cuda.h, nccl.h ... the headers that tests compare declarations with
#   cutlass/cute/...           CUTLASS's headers, whose tables tests compare the tensor cores' layouts with
# What is there already is not fetched again; an interrupted run leaves nothing behind. Needs python3 with pip.
set -eu

# CUDA 13.0 runs on drivers from 580 on. The disassembler is newer: it reads what the compiler writes.
packages="nvidia-cuda-nvcc==13.0.88 nvidia-nvvm==13.0.88 nvidia-cuda-crt==13.0.88 nvidia-cuda-runtime==13.0.96
  nvidia-cuda-cccl==13.0.85 nvidia-cuda-cuobjdump==13.2.51 nvidia-cuda-nvdisasm==13.2.51 nvidia-cutlass==4.2.0.0"
nccl=nvidia-nccl-cu13==2.27.7
root=$(cd "$(dirname "$0")/../.." && pwd)
prefix=${1:-$root/.deps/cuda}

say() { echo "get_nvcc: $*"; }

if [ "$(cat "$prefix/packages" 2>/dev/null)" = "$packages $nccl" ]; then
  say "$prefix is up to date"
  exit 0
fi
mkdir -p "$(dirname "$prefix")"
work=$(mktemp -d "$prefix.work.XXXXXX")
trap 'rm -rf "$work"' EXIT
trap 'exit 1' HUP INT TERM
chmod 755 "$work"
say "fetching nvcc 13.0"
# shellcheck disable=SC2086 # a word a package
python3 -m pip --quiet --disable-pip-version-check --no-cache-dir install --no-deps --only-binary :all: --target "$work/wheels" $packages
python3 -m pip --quiet --disable-pip-version-check --no-cache-dir download --no-deps --only-binary :all: --dest "$work/nccl" "$nccl"
toolkit=wheels/nvidia/cu13
python3 -m zipfile -e "$work/nccl"/*.whl "$work/nccl/files"
cp "$work/nccl/files/nvidia/nccl/include/nccl.h" "$work/$toolkit/include/"
rm -rf "$work/nccl"
ln -s lib "$work/$toolkit/lib64"  # where nvcc looks
ln -s "$toolkit/bin" "$work/bin"
ln -s "$toolkit/include" "$work/include"
ln -s wheels/cutlass_library/source/include "$work/cutlass"
chmod +x "$work/$toolkit/bin"/* "$work/$toolkit/nvvm/bin"/*
"$work/bin/nvcc" --version | tail -n 1
echo "$packages $nccl" >"$work/packages"
rm -rf "$prefix"
mv "$work" "$prefix"
trap - EXIT
say "$prefix is ready"
