"""Gemma 3 270M over ranks: the greedy tokens of one rank, in f32 and with weights of 4 bits.

usage: gemma_meshes.py PLAIT MODELS [MPIRUN]      with MPIRUN on processes, too

Skips dtypes whose model is not there; ends with 77 when none is. PLAIT_MODELS of the environment comes before MODELS.
"""
import json
import os
import sys

from gemma_test import FOLDERS, HERE, SKIPPED, joined, run

MESHES = ("tensor=2", "tensor=4", "data=2", "data=2,tensor=2")
PROMPTS, TOKENS = 4, 32


def answer(plait, model, case, mesh, mpirun):
    """The greedy ids; `mpirun` holds the words in front, or none for threads."""
    words = ["--ids", joined(case["ids"]), "--max-tokens", str(TOKENS), "--temperature", "0", "--ignore-eos", "--json"]
    # Weights of 4 bits are computed with in f32.
    words += ["--dtype", "f32"] if model.endswith("-f32") else []
    words += ["--mesh", mesh, "--threads", "1"] if mesh else []
    return json.loads(run([*mpirun, plait, "generate", model, *words]))["ids"]


def faults_of(plait, model, cases, mpirun):
    for case in cases:
        expected = answer(plait, model, case, "", [])
        for mesh in MESHES:
            ranks = 1
            for axis in mesh.split(","):
                ranks *= int(axis.split("=")[1])
            ways = {"threads": []}
            if mpirun:
                ways["processes"] = [mpirun, "--allow-run-as-root", "--oversubscribe", "-n", str(ranks)]
            for way, front in ways.items():
                got = answer(plait, model, case, mesh, front)
                print(f"{os.path.basename(model)}, {len(case['ids'])} tokens, {mesh}, {way}: {got == expected}", flush=True)
                if got != expected:
                    yield f"{model} on {mesh} ({way}), {case['text'][:30]!r}: {got}, expected {expected}"


def main():
    plait, models, *mpirun = sys.argv[1:]
    models = os.environ.get("PLAIT_MODELS") or models
    folders = [os.path.join(models, name) for name in (FOLDERS["f32"], "gemma-3-270m-int4")]
    there = [folder for folder in folders if os.path.exists(os.path.join(folder, "model.onnx"))]
    for folder in set(folders) - set(there):
        print(f"left out: {folder} is missing, make it with samples/gemma3/fetch.sh --dtype {folder.rsplit('-', 1)[1]}")
    if not there:
        return SKIPPED
    with open(os.path.join(HERE, "goldens", "gemma.json"), encoding="utf-8") as file:
        cases = json.load(file)["f32"][:PROMPTS]
    faults = [fault for folder in there for fault in faults_of(plait, folder, cases, mpirun[0] if mpirun else "")]
    for fault in faults:
        print(fault)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
