"""What every engine's child process does: load, generate, and print one line of JSON.

An engine is an object with
    generate(prompts, new_tokens) -> Timing     greedy, stopping at nothing; prompts are lists of token ids
    notes                                       a list of sentences about what it did differently
Only the standard library is used here, so that the memory of an engine is its own.
"""

import json
import random
import statistics
import sys
import time
import traceback
from dataclasses import dataclass
from pathlib import Path

LOWEST_ID, HIGHEST_ID = 1000, 30000
WARM_UP_TOKENS = 8
# The time to a first token is the median over so many prompts: a single one depends more on the machine's other guests.
PROMPTS = 3
# Enough to see whether two engines run the same model; rounding parts longer greedy texts.
ANSWER_TOKENS = 16


@dataclass
class Timing:
    """Seconds until every prompt had its first token, seconds after that and the tokens made in them; all ids."""

    first_s: float
    rest_s: float
    ids: list
    rest_tokens: int


def prompt(length, seed):
    """Random ids that all models have and that are no special tokens."""
    return random.Random(seed).choices(range(LOWEST_ID, HIGHEST_ID), k=length)


def greedy_loop(prompts, new_tokens, prefill, step):
    """The loop of engines that have none: `prefill(prompts)` and `step(tokens)` return the best token of each."""
    start = time.perf_counter()
    last = prefill(prompts)
    first = time.perf_counter()
    ids = [[token] for token in last]
    for _ in range(new_tokens - 1):
        last = step(last)
        for made, token in zip(ids, last):
            made.append(token)
    return Timing(first - start, time.perf_counter() - first, ids, len(prompts) * (new_tokens - 1))


def peak_mib():
    """The highest resident memory of this process so far, mapped files included."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 1024
    return None


def run(job, load):
    """All figures of one engine: one prompt after another, then the batch. `load(job)` returns the engine."""
    start = time.perf_counter()
    engine = load(job)
    figures = {"load_s": time.perf_counter() - start}
    warm_up = engine.generate([prompt(WARM_UP_TOKENS, 0)], 3)
    # Engines that map their weights read them only now.
    figures["start_s"] = figures["load_s"] + warm_up.first_s
    answer = []
    for length in job["prompts"]:
        # Only the first prompt continues: what is wanted of the others is their first token.
        decodes = not answer
        made = engine.generate([prompt(length, length)], job["decode"] if decodes else 1)
        others = [engine.generate([prompt(length, 10 * length + i)], 1).first_s for i in range(1, PROMPTS)]
        figures[f"first_token_{length}_s"] = statistics.median([made.first_s, *others])
        answer += made.ids[0][:ANSWER_TOKENS]
        if decodes:
            figures["decode_1_tok_s"] = made.rest_tokens / made.rest_s
    figures["peak_mib"] = peak_mib()
    if job["batch"] > 1:
        prompts = [prompt(job["prompts"][0], 1000 + i) for i in range(job["batch"])]
        made = engine.generate(prompts, job["decode"])
        figures[f"decode_{job['batch']}_tok_s"] = made.rest_tokens / made.rest_s
    return {"figures": figures, "answer": answer, "notes": engine.notes}


def child_main(load, run=run):
    """Entry of a child: the job as JSON in the first argument, the result as the last line of stdout."""
    try:
        result = run(json.loads(sys.argv[1]), load)
    except Exception as error:  # the driver reports it and goes on with the other engines
        traceback.print_exc()
        result = {"error": f"{type(error).__name__}: {error}".splitlines()[0]}
    print(json.dumps(result), flush=True)
