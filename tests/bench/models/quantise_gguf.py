#!/usr/bin/env python3
"""Quantises a GGUF file by llama.cpp itself: quantise_gguf.py FROM TO q4_0|q8_0. What is there is not made again."""

import ctypes
import sys
from pathlib import Path

import llama_cpp

TYPES = {"q4_0": llama_cpp.LLAMA_FTYPE_MOSTLY_Q4_0, "q8_0": llama_cpp.LLAMA_FTYPE_MOSTLY_Q8_0}


def main():
    source, out, kind = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]
    if out.exists():
        return 0
    log = llama_cpp.llama_log_callback(lambda level, text, data: None)
    llama_cpp.llama_log_set(log, ctypes.c_void_p(0))
    print(f"{out.name}: quantising {source.name}", file=sys.stderr, flush=True)
    params = llama_cpp.llama_model_quantize_default_params()
    params.ftype = TYPES[kind]
    part = out.with_name(f".{out.name}.part")
    code = llama_cpp.llama_model_quantize(str(source).encode(), str(part).encode(), ctypes.byref(params))
    if code:
        print(f"quantise_gguf.py: llama.cpp returned {code}", file=sys.stderr)
        return 1
    part.rename(out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
