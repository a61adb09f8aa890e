"""Every fixture through the command line: logits within tolerance of the goldens, and the same greedy tokens.

usage: parity_fixtures.py PLAIT FIXTURES [NAME...]
"""
import json
import os
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import npy_files
from limits import HANG_S


def run(words):
    done = subprocess.run(words, capture_output=True, text=True, timeout=HANG_S)
    if done.returncode != 0:
        raise AssertionError(f"{' '.join(words[:3])}: status {done.returncode}: {done.stderr.strip()}")
    return done.stdout


def check_prompt(plait, folder, fixture, prompt, out):
    """What is wrong, or nothing."""
    model = os.path.join(folder, fixture["model"])
    ids = ",".join(map(str, prompt["ids"]))
    common = ["--threads", "2", "--cache-dir", "", "--option", "cache_bytes=8M"]
    run([plait, "logits", model, "--ids", ids, "--out", out] + common)
    _, shape, got = npy_files.read(out)
    _, expected_shape, expected = npy_files.read(os.path.join(folder, prompt["logits"]))
    if tuple(shape) != tuple(expected_shape):
        yield f"logits of shape {shape}, expected {expected_shape}"
        return
    largest = max(map(abs, expected))
    worst = max(abs(a - b) for a, b in zip(got, expected)) / largest
    limit = fixture["tolerance"]["logits_relative"]
    if not worst <= limit:
        yield f"logits differ by {worst:.2e} of the largest, at most {limit:.0e} allowed"
    answer = json.loads(run([plait, "generate", model, "--ids", ids, "--max-tokens", str(len(prompt["greedy"])),
                             "--temperature", "0", "--ignore-eos", "--json"] + common))
    if fixture["tolerance"]["greedy_equal"] and answer["ids"] != prompt["greedy"]:
        yield f"greedy tokens {answer['ids']}, expected {prompt['greedy']}"


def main():
    plait, folder, names = sys.argv[1], sys.argv[2], sys.argv[3:]
    with open(os.path.join(folder, "manifest.json")) as file:
        fixtures = json.load(file)["fixtures"]
    wrong = checked = 0
    with tempfile.TemporaryDirectory() as temporary:
        for fixture in fixtures:
            if names and fixture["name"] not in names:
                continue
            for prompt in fixture["prompts"]:
                checked += 1
                try:
                    faults = list(check_prompt(plait, folder, fixture, prompt, os.path.join(temporary, "logits.npy")))
                except AssertionError as error:
                    faults = [str(error)]
                for fault in faults:
                    wrong += 1
                    print(f"{fixture['name']}, {len(prompt['ids'])} tokens: {fault}")
    print(f"{checked} prompts, {wrong} faults")
    return 1 if wrong or not checked else 0


if __name__ == "__main__":
    sys.exit(main())
