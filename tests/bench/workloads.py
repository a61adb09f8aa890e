"""The models of the generation benchmark: where their files lie, and how they are made."""

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
MODELS = Path(os.environ.get("PLAIT_MODELS", ROOT / "models"))
PEERS = Path(os.environ.get("PLAIT_PEERS", ROOT / ".venv-peers"))
PEERS_PYTHON = PEERS / "peers" / "bin" / "python"
OPENVINO_PYTHON = PEERS / "openvino" / "bin" / "python"


# Bits of a weight that are read, and the kind of GGUF file that a quantised one is compared with. Blocks of 32 have a scale
# of 16 bits in GGUF. In the ONNX file it has 32, but is a bf16 number, and Plait keeps it so.
BITS = {"f32": 32, "bf16": 16, "int4": 4.5, "int8": 8.5}
GGUF_KINDS = {"int4": "q4_0", "int8": "q8_0"}


@dataclass(frozen=True)
class Model:
    """A model in f32, bf16, int4 and int8. `parameters` counts what a token reads: all weights, the embedding once, as the head."""

    name: str
    folders: dict
    parameters: int
    layers: int
    kv_heads: int
    head_dim: int
    # Layers that see only so many positions, and how many of them there are.
    window: int = 0
    windowed_layers: int = 0

    def folder(self, dtype):
        return MODELS / self.folders.get(dtype, f"{self.stem}-{dtype}")

    def gguf(self, dtype):
        return MODELS / f"{self.stem}-{GGUF_KINDS.get(dtype, dtype)}.gguf"

    def openvino(self, dtype):
        return MODELS / "openvino" / f"{self.stem}-{dtype}"

    @property
    def stem(self):
        return self.folders["bf16"].removesuffix("-bf16")

    def bytes_per_token(self, weight_bits, context, batch, cache_bytes):
        """Bytes of weights and cache that one token of a batch has to read at the given context length."""
        weights = self.parameters * weight_bits / 8
        seen = (self.layers - self.windowed_layers) * context + self.windowed_layers * min(context, self.window)
        return weights / batch + seen * self.kv_heads * self.head_dim * 2 * cache_bytes


ALL = {model.name: model for model in (
    Model("gemma", {"bf16": "gemma-3-270m", "f32": "gemma-3-270m-f32"}, 268_098_176, layers=18, kv_heads=1,
          head_dim=256, window=512, windowed_layers=15),
    Model("llama1b", {"bf16": "llama-1b-bf16", "f32": "llama-1b-f32"}, 1_235_814_400, layers=16, kv_heads=8,
          head_dim=64),
)}


def run(*command):
    # stdout is the table's.
    subprocess.run([str(part) for part in command], check=True, stdout=sys.stderr)


def prepare(models, dtypes, openvino):
    """Makes what is missing: environments, ONNX models, GGUF files, and OpenVINO's form where it is asked for."""
    run(HERE / "peers/setup_peers.sh", *(["--all"] if openvino else []))
    for model in models:
        for dtype in dtypes:
            make(model, dtype)
            if openvino and not model.openvino(dtype).exists():
                print(f"{model.openvino(dtype).name}: converting for OpenVINO", file=sys.stderr, flush=True)
                run(OPENVINO_PYTHON, HERE / "peers/peer_openvino.py", "convert", model.folder(dtype), model.openvino(dtype))


def make(model, dtype):
    """The ONNX file and the GGUF file; of a quantised model llama.cpp makes the latter from the one in bf16."""
    if model.name == "gemma":
        run(ROOT / "samples" / "gemma3" / "fetch.sh", "--dtype", dtype)
    elif not (model.folder(dtype) / "model.onnx").exists() or not model.gguf(dtype).exists():
        run(PEERS_PYTHON, HERE / "models/make_llama1b.py", "--models", MODELS, "--dtypes", dtype)
    if dtype in GGUF_KINDS:
        for kind in ("q4_0", "q8_0"):
            out = MODELS / f"{model.stem}-{kind}.gguf"
            if not out.exists():
                make(model, "bf16")
                run(PEERS_PYTHON, HERE / "models/quantise_gguf.py", model.gguf("bf16"), out, kind)
    elif model.name == "gemma":
        run(PEERS_PYTHON, HERE / "models/onnx_to_gguf.py", model.folder(dtype), model.gguf(dtype))


def warm_files(model, dtype, engines):
    """Reads the files of a comparison once, so that no engine pays for the disk."""
    paths = [*model.folder(dtype).glob("model.onnx*")]
    if "llama.cpp" in engines:
        paths.append(model.gguf(dtype))
    if "llama.cpp q8_0" in engines:
        paths.append(model.gguf("int8"))
    if "openvino" in engines:
        paths += model.openvino(dtype).glob("*.bin")
    for path in paths:
        with open(path, "rb") as file:
            while file.read(1 << 24):
                pass
