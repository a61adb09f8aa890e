"""What was trained or rounded to few bits here runs in ONNX Runtime: its logits of the exported model are Plait's.

usage: onnxruntime_test.py PLAIT FIXTURES [--zoo | --quantized | NAME...]

Runs in the environment of get_onnxruntime.sh, which `./run test` makes; says NOT RUN and ends where there is none. Without names:
every fixture of f32. --zoo: every export of tests/fixtures/zoo that can be trained. --quantized: `plait quantize` of every fixture of
f32, by bits and method.
"""
import json
import os
import subprocess
import sys
import tempfile

from limits import HANG_S

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
ENVIRONMENT = os.path.join(ROOT, ".cache", "onnxruntime", "bin", "python")
sys.path.append(os.path.join(ROOT, "tests", "fixtures", "zoo"))

LIMIT = 1e-4  # of the largest logit
ROUNDED = 0.2  # where ONNX Runtime rounds activations to 8 bits, as the file asks for
IDS = [5, 17, 9, 80, 41, 7, 63, 22, 11, 30, 77, 3]


def call(*words):
    done = subprocess.run(words, capture_output=True, text=True, timeout=HANG_S)
    if done.returncode != 0:
        raise AssertionError(f"{' '.join(words[1:3])}: {done.stderr.strip()}")
    return done.stdout


def logits(plait, model, out, *words):
    import numpy
    call(plait, "logits", model, "--ids", ",".join(map(str, IDS)), "--out", out, "--threads", "1", "--cache-dir", "",
         "--option", "cache_bytes=8M", *words)
    return numpy.load(out)


def check(plait, model, folder, lora):
    """How far logits are apart, as a share of the largest, and how far training moved them."""
    import numpy
    from runner import Runner, relative_error
    data = os.path.join(folder, "data.npy")
    numpy.save(data, numpy.array([(i * 7 + i // 5) % 90 + 3 for i in range(320)], numpy.int32))
    before = logits(plait, model, os.path.join(folder, "logits.npy"))
    answer = json.loads(call(plait, "train", model, "--data", data, "--out", os.path.join(folder, "run"), "--json", "--lr",
                             "1e-2", "--schedule", "constant", "--batch", "4", "--seq", "40", "--steps", "3", "--threads", "1",
                             *(["--lora", "4"] if lora else [])))
    trained = ["--adapter", answer["files"]["adapter"]] if lora else ["--checkpoint", os.path.join(folder, "run")]
    out = os.path.join(folder, "exported")
    call(plait, "export", model, *trained, "--out", out)
    file = os.path.join(out, os.path.basename(model) if model.endswith(".onnx") else "model.onnx")
    config = os.path.join(model if os.path.isdir(model) else os.path.dirname(model), "genai_config.json")
    if os.path.exists(config) and not os.path.exists(os.path.join(out, "genai_config.json")):
        os.symlink(config, os.path.join(out, "genai_config.json"))
    got = Runner(file).step([IDS])[0]
    expected = logits(plait, file, os.path.join(folder, "logits.npy"))
    if lora:  # beside the weights, instead of within them
        beside = logits(plait, model, os.path.join(folder, "logits.npy"), "--option", "adapter=" + trained[1])
        assert relative_error(expected, beside) <= LIMIT, f"merged and beside differ by {relative_error(expected, beside):.1e}"
    return relative_error(got, expected), relative_error(expected, before)


# Options of `plait quantize`, and how far logits may be from the unrounded model's, as a share of the largest; None: not compared.
ROUNDINGS = [
    (["--bits", "8"], 0.1), (["--bits", "8", "--asymmetric", "--block", "16"], 0.1), (["--bits", "6"], 0.5), (["--bits", "4"], None),
    (["--bits", "4", "--asymmetric", "--head-bits", "4", "--embedding-bits", "4"], None),
    (["--bits", "3", "--head-bits", "0", "--embedding-bits", "0"], None), (["--bits", "4", "--block", "16", "calibration"], None)]


def check_rounded(plait, model, folder):
    """Rounds a model in all ways."""
    import numpy
    from runner import Runner, relative_error
    data = os.path.join(folder, "data.npy")
    numpy.save(data, numpy.array([(i * 7 + i // 5) % 90 + 3 for i in range(640)], numpy.int32))
    before = logits(plait, model, os.path.join(folder, "logits.npy"))
    for number, (words, limit) in enumerate(ROUNDINGS):
        out = os.path.join(folder, f"rounded-{number}")
        if words[-1] == "calibration":
            words = [*words[:-1], "--calibration", data, "--calibration-window", "32", "--seq", "40"]
        answer = json.loads(call(plait, "quantize", model, *words, "--json", "--cache-dir", "", "--out", out))
        assert ("perplexity_after" in answer) == ("--calibration" in words), answer
        file = os.path.join(out, os.path.basename(model) if model.endswith(".onnx") else "model.onnx")
        expected = logits(plait, file, os.path.join(folder, "logits.npy"))
        error, moved = relative_error(Runner(file).step([IDS])[0], expected), relative_error(expected, before)
        assert error <= LIMIT, f"{' '.join(words)}: ONNX Runtime's logits differ by {error:.1e}"
        assert moved > 1e-6, f"{' '.join(words)}: nothing was rounded"
        assert limit is None or moved <= limit, f"{' '.join(words)}: rounding moved the logits by {moved:.1e}"


def models(fixtures, names, zoo):
    """(path, how far apart logits may be)"""
    if zoo:
        with open(os.path.join(ROOT, "tests", "fixtures", "zoo", "manifest.json")) as file:
            for row in json.load(file)["models"]:
                path = os.path.join("zoo", row["name"])
                yield (path if row["file"] == "model.onnx" else os.path.join(path, row["file"]),
                       LIMIT if row["exact"] else ROUNDED)
    elif names:
        yield from ((name, LIMIT) for name in names)
    else:
        with open(os.path.join(fixtures, "manifest.json")) as file:
            for row in json.load(file)["fixtures"]:
                if not row["name"].endswith(("bf16", "f16")):
                    yield row["model"], LIMIT


def main():
    plait, fixtures, names = sys.argv[1], sys.argv[2], sys.argv[3:]
    try:
        import onnxruntime
    except ImportError:
        if os.path.exists(ENVIRONMENT) and sys.executable != ENVIRONMENT:
            os.execv(ENVIRONMENT, [ENVIRONMENT, *sys.argv])
        print("NOT RUN: there is no ONNX Runtime; tests/bindings/get_onnxruntime.sh fetches it")
        return 0
    print("ONNX Runtime", onnxruntime.__version__)
    zoo = names == ["--zoo"]
    wrong = checked = refused = 0
    if names == ["--quantized"]:
        for name, _ in models(fixtures, [], False):
            with tempfile.TemporaryDirectory() as folder:
                checked += len(ROUNDINGS)
                try:
                    check_rounded(plait, os.path.join(fixtures, name), folder)
                except AssertionError as fault:
                    if "its products are within functions" in str(fault):
                        refused += 1
                        continue
                    wrong += 1
                    print(f"{name}: {fault}")
        print(f"{checked} rounded models; {wrong} of the fixtures wrong, {refused} refused")
        return 1 if wrong or not checked or refused > 1 else 0
    for name, limit in models(fixtures, names, zoo):
        for lora in (False, True):
            with tempfile.TemporaryDirectory() as folder:
                checked += 1
                try:
                    error, moved = check(plait, os.path.join(fixtures, name), folder, lora)
                    fault = "" if error <= limit and moved > LIMIT else f"differ by {error:.1e}, moved by {moved:.1e}"
                except AssertionError as refusal:
                    if zoo and (str(refusal).startswith("train ") or "cannot take in its adapter" in str(refusal)):
                        refused += 1
                        print(f"{name}{', LoRA' if lora else ''}: refused: {refusal}")
                        continue
                    fault = str(refusal)
            if fault:
                wrong += 1
                print(f"{name}{', LoRA' if lora else ''}: {fault}")
    print(f"{checked} exports, {refused} of them refused, {wrong} wrong")
    return 1 if wrong or checked == refused else 0


if __name__ == "__main__":
    sys.exit(main())
