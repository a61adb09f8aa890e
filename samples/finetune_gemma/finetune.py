#!/usr/bin/env python3
"""Trains an adapter of Gemma 3 270M on the Debian Policy Manual, and shows what has changed.

usage: finetune.py [--plait PLAIT] [--model DIR] [--out DIR] [--steps N] [--threads N]

Ends with 77 when the model is not there.

Fetches the text (fetch_text.sh), keeps its last tenth back, trains a LoRA adapter of rank 16 on the rest, and prints the
perplexity of what was kept back, and how the model goes on with a sentence, before and after. OUT gets the run, the
adapter, and the model with the adapter merged, as ONNX.
"""
import argparse
import json
import os
import shutil
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
PROMPT = "Every package must have a maintainer, who is responsible for"


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    models = os.environ.get("PLAIT_MODELS", os.path.join(ROOT, "models"))
    parser.add_argument("--plait", default=os.path.join(ROOT, "build/release/bindings/cli/plait"))
    parser.add_argument("--model", default=os.path.join(models, "gemma-3-270m"))
    parser.add_argument("--out", default="finetune-gemma")
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--threads", type=int, default=0)
    return parser.parse_args()


def split(text, folder):
    """Two files of paragraphs as JSON lines: what is trained on, and the last tenth. The table of contents is left out."""
    paragraphs, lines = [], []
    for line in text.splitlines() + [""]:
        if line.strip():
            lines.append(line.strip())
        elif lines:
            paragraphs.append(" ".join(lines))
            lines = []
    paragraphs = [paragraph for paragraph in paragraphs if len(paragraph) > 120]
    kept_back = len(paragraphs) // 10
    names = []
    for name, part in (("train", paragraphs[:-kept_back]), ("held-out", paragraphs[-kept_back:])):
        # Some paragraphs make a document: they belong together.
        names.append(os.path.join(folder, name + ".jsonl"))
        with open(names[-1], "w") as file:
            for first in range(0, len(part), 4):
                file.write(json.dumps({"text": "\n\n".join(part[first:first + 4])}) + "\n")
    return names


def main():
    given = arguments()
    if not os.path.isdir(given.model):
        print(f"there is no {given.model}: samples/gemma3/fetch.sh makes it")
        sys.exit(77)
    text = os.path.join(given.out, "policy.txt")
    subprocess.run([os.path.join(HERE, "fetch_text.sh"), text], check=True)
    with open(text) as file:
        train, held_out = split(file.read(), given.out)
    threads = ["--threads", str(given.threads)]

    def plait(command, model, *words):
        done = subprocess.run([given.plait, command, model, *words], stdout=subprocess.PIPE, check=True, text=True)
        return done.stdout

    def evaluate(*words):
        return json.loads(plait("eval", given.model, "--data", held_out, "--seq", "512", "--json", *threads, *words))

    def generate(model):
        answer = json.loads(plait("generate", model, "--prompt", PROMPT, "--max-tokens", "48", "--temperature", "0",
                                  "--json", *threads))
        return PROMPT + answer["text"]

    run, tuned = os.path.join(given.out, "run"), os.path.join(given.out, "tuned")
    for folder in (run, tuned):
        shutil.rmtree(folder, ignore_errors=True)
    before = evaluate()
    print(f"perplexity of the held-out tenth, before: {before['perplexity']:.2f} ({before['targets']} tokens)")
    print(f"before: {generate(given.model)}\n", flush=True)
    answer = json.loads(plait("train", given.model, "--data", train, "--out", run, "--lora", "16", "--lora-alpha", "32",
                              "--lr", "1e-3", "--warmup", "5", "--seq", "512", "--cut-long", "--batch", "4",
                              "--micro-batch", "1024", "--steps", str(given.steps), "--seed", "1", "--json", *threads))
    timings = answer["timings"]
    print(f"{answer['steps']} steps, {sum(answer['tokens'])} tokens in {timings['train_s']:.0f} s "
          f"({timings['tokens_per_s']:.0f} tokens/s), peak memory {answer['peak_memory_bytes'] / 1e9:.2f} GB")
    print(f"loss: {answer['losses'][0]:.3f} at first, {sum(answer['losses'][-5:]) / 5:.3f} in the last five steps")
    after = evaluate("--adapter", answer["files"]["adapter"])
    print(f"perplexity of the held-out tenth, after: {after['perplexity']:.2f}")
    plait("export", given.model, "--adapter", answer["files"]["adapter"], "--out", tuned)
    print(f"after: {generate(tuned)}")
    merged = json.loads(plait("eval", tuned, "--data", held_out, "--seq", "512", "--json", *threads))
    print(f"perplexity of the exported model: {merged['perplexity']:.2f}")
    if after["perplexity"] > 0.95 * before["perplexity"]:
        sys.exit("the perplexity has not fallen")
    if abs(merged["loss"] - after["loss"]) > 0.01 * after["loss"]:
        sys.exit("the exported model is another one than the adapter makes")


if __name__ == "__main__":
    main()
