#!/usr/bin/env python3
"""Makes goldens/: what ONNX Runtime says about Gemma 3 270M, for the tests that are marked large.

    make_goldens.py [MODELS]      a folder with gemma-3-270m-f32 and gemma-3-270m (see samples/gemma3)

Needs numpy, onnxruntime and tokenizers in the versions of ../fixtures/requirements.txt. Writes
    gemma.json       prompts with their ids and 32 greedy tokens of the f32 model; which logits of which text are kept
    gemma_bf16.npy   f32 [24, 520]: for 24 positions in two of the texts, the logits of the bf16 model, that is f32
                     arithmetic on weights rounded to bf16, for 512 ids spread over the vocabulary and the 8 best
The weights themselves stay out of the repository.
"""

import sys
from pathlib import Path

import numpy as np
from tokenizers import Tokenizer

HERE = Path(__file__).resolve().parent
FIXTURES = HERE.parent / "fixtures"
sys.path.insert(0, str(FIXTURES))
from goldens import Runner
from json_files import write_json

OUT = HERE / "goldens"
TOKENS = 32
WINDOW = 512
# f32 engines differ by 2e-5 of the largest logit on this model: leads must be well above it.
LEAST_MARGIN = 1.5e-4
POSITIONS = 12  # of each of the two texts
SPREAD, TOP = 512, 8
# Odd, so that the ids kept meet every lane of a vector and every place of a tile: 511 * 511 < 262,144.
ID_STEP = 511
PROMPTS = [
    "Once upon a time, there was a little",
    "To bake a loaf of bread, you need",
    "Question: What is the capital of France?\nAnswer:",
    "def fibonacci(n):\n    ",
    "In the year 1850, the harbour of the town",
    "1, 2, 3, 4, 5,",
    "Der Himmel über der Stadt war",
    "Dear Sir or Madam,\n\nI am writing to",
    "<html>\n<head>\n<title>",
]


def long_prompt():
    """A text that is longer than the sliding window and repeats its beginning at its end. To go on as the beginning did
    takes the layers that see all of it: it lies outside the window of the others."""
    corpus = (FIXTURES / "corpus.txt").read_text(encoding="utf-8")
    return corpus + "\n" + corpus[: corpus.index("def add")]


def greedy(runner, ids):
    """(greedy tokens, smallest lead of the best token as a share of the largest logit) after the prompt."""
    runner.reset()
    logits, tokens, margins = runner.step(ids), [], []
    while True:
        second, first = np.partition(logits[-1], -2)[-2:]
        margins.append((first - second) / np.abs(logits[-1]).max())
        tokens.append(int(logits[-1].argmax()))
        if len(tokens) == TOKENS:
            return tokens, float(min(margins))
        logits = runner.step(tokens[-1:])


def f32_cases(models):
    folder = models / "gemma-3-270m-f32"
    tokenizer, runner = Tokenizer.from_file(str(folder / "tokenizer.json")), Runner(folder / "model.onnx")
    cases = []
    for text in [*PROMPTS, long_prompt()]:
        ids = tokenizer.encode(text).ids
        tokens, margin = greedy(runner, ids)
        print(f"{len(ids)} tokens, margin {margin:.1e}: {tokenizer.decode(tokens)!r}", flush=True)
        if margin < LEAST_MARGIN:
            raise ValueError("a near tie: choose another prompt")
        cases.append({"text": text, "ids": ids, "greedy": tokens})
    if len(cases[-1]["ids"]) <= WINDOW:
        raise ValueError("the last prompt has to be longer than the window")
    return cases


def bf16_texts(models, texts):
    """(what gemma.json contains of each text, the kept logits [2 * POSITIONS, SPREAD + TOP])"""
    runner = Runner(models / "gemma-3-270m" / "model.onnx")
    said, kept = [], []
    for ids in texts:
        runner.reset()
        logits = runner.step(ids)
        spread = np.arange(SPREAD) * ID_STEP
        positions = np.linspace(0, len(ids) - 1, POSITIONS).round().astype(int)
        top = np.argsort(-logits[positions], axis=1, kind="stable")[:, :TOP]
        kept += [logits[at][np.concatenate([spread, best])] for at, best in zip(positions, top)]
        said.append({"ids": ids, "positions": positions.tolist(), "top": top.tolist(),
                     "largest_logit": float(np.abs(logits[positions]).max())})
        print(f"{len(ids)} tokens, {POSITIONS} positions kept", flush=True)
    return said, np.array(kept, np.float32)


def main():
    models = Path(sys.argv[1]) if len(sys.argv) > 1 else HERE.parents[1] / "models"
    OUT.mkdir(exist_ok=True)
    cases = f32_cases(models)
    texts, logits = bf16_texts(models, [case["ids"] + case["greedy"] for case in (cases[0], cases[-1])])
    np.save(OUT / "gemma_bf16.npy", logits)
    write_json(OUT / "gemma.json", {"f32": cases, "bf16": {"logits": "gemma_bf16.npy", "spread": SPREAD,
                                                           "id_step": ID_STEP, "texts": texts}})
    return 0


if __name__ == "__main__":
    sys.exit(main())
