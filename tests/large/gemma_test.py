"""Gemma 3 270M through the command line against ONNX Runtime's answers in goldens/ (see make_goldens.py).

usage: gemma_test.py PLAIT MODELS f32|bf16|emulated

f32:  the ids of 10 prompts, and their 32 greedy tokens, are the same.
bf16: logits of two texts, teacher-forced: an NMSE of at most 1e-3, and no logit off by more than 3e-2 of the largest.
emulated: an emulated device of 2.5 GB generates the processor's greedy tokens of three prompts.
PLAIT_MODELS of the environment comes before MODELS. Ends with 77 when the model is not there.
"""
import array
import ast
import json
import os
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "bindings"))
import npy_files

SKIPPED = 77
FOLDERS = {"f32": "gemma-3-270m-f32", "bf16": "gemma-3-270m", "emulated": "gemma-3-270m"}
MOST_NMSE, MOST_ERROR = 1e-3, 3e-2


def run(words, stdin=""):
    done = subprocess.run(words, input=stdin.encode(), capture_output=True, timeout=7200)
    if done.returncode != 0:
        raise AssertionError(f"{' '.join(words[:3])}: status {done.returncode}: {done.stderr.decode().strip()}")
    return done.stdout.decode()


def joined(ids):
    return ",".join(map(str, ids))


def rows(path, positions):
    """The rows [v] of an f32 [s, v] file, which may be larger than memory should hold: 851 MB for 812 tokens."""
    with open(path, "rb") as file:
        begin = file.read(10)
        assert begin[:8] == b"\x93NUMPY\x01\x00", path
        header = ast.literal_eval(file.read(int.from_bytes(begin[8:], "little")).decode())
        assert header["descr"] == "<f4" and not header["fortran_order"], header
        first, (count, width) = file.tell(), header["shape"]
        assert os.path.getsize(path) == first + 4 * count * width and max(positions) < count, header
        out = []
        for at in positions:
            file.seek(first + 4 * width * at)
            out.append(array.array("f", file.read(4 * width)))
    return out


def check_f32(plait, model, golden, temporary):
    """What is wrong, a line each."""
    cache = ["--cache-dir", os.path.join(temporary, "cache")]
    for case in golden["f32"]:
        what = f"f32, {len(case['ids'])} tokens, {case['text'][:30]!r}"
        ids = [int(word) for word in run([plait, "tokenize", model, *cache], case["text"]).split(",")]
        if ids != case["ids"]:
            yield f"{what}: the text is {ids}, expected {case['ids']}"
        words = ["--ids", joined(case["ids"]), "--max-tokens", str(len(case["greedy"])), "--temperature", "0"]
        got = json.loads(run([plait, "generate", model, *words, "--ignore-eos", "--json", "--dtype", "f32"]))["ids"]
        print(f"{what}: {got}", flush=True)
        if got != case["greedy"]:
            yield f"{what}: greedy tokens {got}, expected {case['greedy']}"


def check_bf16(plait, model, golden, temporary):
    """What is wrong, a line each."""
    kept = golden["bf16"]
    _, (count, width), expected = npy_files.read(os.path.join(HERE, "goldens", kept["logits"]))
    assert count == sum(len(text["positions"]) for text in kept["texts"])
    spread = [i * kept["id_step"] for i in range(kept["spread"])]
    first, out = 0, os.path.join(temporary, "logits.npy")
    for text in kept["texts"]:
        run([plait, "logits", model, "--ids", joined(text["ids"]), "--out", out, "--dtype", "bf16"])
        errors, power, worst = 0.0, 0.0, 0.0
        for i, row in enumerate(rows(out, text["positions"])):
            wanted = expected[(first + i) * width:(first + i + 1) * width]
            differences = [row[at] - value for at, value in zip(spread + text["top"][i], wanted, strict=True)]
            errors += sum(value * value for value in differences)
            power += sum(value * value for value in wanted)
            worst = max([worst, *map(abs, differences)])
        first += len(text["positions"])
        nmse, largest = errors / power, worst / text["largest_logit"]
        what = f"bf16, {len(text['ids'])} tokens"
        print(f"{what}: NMSE {nmse:.1e}, largest error {largest:.1e} of the largest logit", flush=True)
        if not nmse <= MOST_NMSE:
            yield f"{what}: NMSE {nmse:.2e}, at most {MOST_NMSE:.0e} allowed"
        if not largest <= MOST_ERROR:
            yield f"{what}: off by {largest:.2e} of the largest logit, at most {MOST_ERROR:.0e} allowed"


def check_emulated(plait, model, golden, temporary):
    """What is wrong, a line each."""
    os.environ["PLAIT_EMULATE_DEVICES"], os.environ["PLAIT_EMULATE_BYTES"] = "1", "2500000000"
    for case in sorted(golden["f32"], key=lambda one: len(one["ids"]))[:3]:
        words = ["generate", model, "--ids", joined(case["ids"]), "--max-tokens", "6", "--temperature", "0", "--ignore-eos", "--json",
                 "--option", "cache_bytes=64M"]
        expected, got = (json.loads(run([plait, *words, "--option", f"device={device}"]))["ids"] for device in ("cpu", "emulated"))
        print(f"emulated, {len(case['ids'])} tokens: {got}", flush=True)
        if got != expected:
            yield f"emulated, {len(case['ids'])} tokens: greedy tokens {got}, expected {expected}"


def main():
    plait, models, dtype = sys.argv[1:]
    models = os.environ.get("PLAIT_MODELS") or models
    model = os.path.join(models, FOLDERS[dtype])
    if not os.path.exists(os.path.join(model, "model.onnx")):
        print(f"skipped: {model} is missing, make it with samples/gemma3/fetch.sh --dtype {'f32' if dtype == 'f32' else 'bf16'}")
        return SKIPPED
    with open(os.path.join(HERE, "goldens", "gemma.json"), encoding="utf-8") as file:
        golden = json.load(file)
    check = {"f32": check_f32, "bf16": check_bf16, "emulated": check_emulated}[dtype]
    with tempfile.TemporaryDirectory() as temporary:
        faults = list(check(plait, model, golden, temporary))
    for fault in faults:
        print(fault)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
