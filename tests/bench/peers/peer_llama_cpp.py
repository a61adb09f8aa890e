#!/usr/bin/env python3
"""llama.cpp on a GGUF file of the same weights, in a child process of its own: see measure.py.

Its low-level interface is called directly, so that only the last position's logits are computed and nothing of the
Python package's own sampling is timed.
"""

import ctypes
import sys
from pathlib import Path

import llama_cpp
import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from measure import child_main, greedy_loop  # noqa: E402

MOST_NEW = 512


class Engine:
    def __init__(self, job):
        self.log = llama_cpp.llama_log_callback(lambda level, text, data: None)
        llama_cpp.llama_log_set(self.log, ctypes.c_void_p(0))
        llama_cpp.llama_backend_init()
        self.job = job
        self.model = llama_cpp.llama_model_load_from_file(job["gguf"].encode(),
                                                          llama_cpp.llama_model_default_params())
        if not self.model:
            raise RuntimeError(f"llama.cpp could not load {job['gguf']}")
        self.vocab = llama_cpp.llama_vocab_n_tokens(llama_cpp.llama_model_get_vocab(self.model))
        self.context = None
        self.sequences = 0
        self.notes = [f"llama-cpp-python {llama_cpp.__version__}, f16 cache"]

    def generate(self, prompts, new_tokens):
        # Making the context is part of loading, not of the first token.
        self._need_context(len(prompts))
        return greedy_loop(prompts, new_tokens, self._prefill, self._step)

    def _need_context(self, sequences):
        if sequences == self.sequences:
            return
        if self.context:
            llama_cpp.llama_free(self.context)
        longest = max(self.job["prompts"]) + self.job["decode"]
        params = llama_cpp.llama_context_default_params()
        params.n_ctx = sequences * longest
        params.n_batch = params.n_ubatch = MOST_NEW
        params.n_seq_max = sequences
        params.n_threads = params.n_threads_batch = self.job["threads"]
        self.context = llama_cpp.llama_init_from_model(self.model, params)
        if not self.context:
            raise RuntimeError("llama.cpp could not make a context")
        self.sequences = sequences
        self.batch = llama_cpp.llama_batch_init(MOST_NEW, 0, 1)

    def _prefill(self, prompts):
        llama_cpp.llama_memory_clear(llama_cpp.llama_get_memory(self.context), False)
        self.lengths = [0] * len(prompts)
        best = []
        for sequence, prompt in enumerate(prompts):
            for first in range(0, len(prompt), MOST_NEW):
                part = prompt[first : first + MOST_NEW]
                rows = [(token, sequence, first + len(part) == len(prompt) and i == len(part) - 1)
                        for i, token in enumerate(part)]
                made = self._decode(rows)
            best += made
        return best

    def _step(self, tokens):
        return self._decode([(token, sequence, True) for sequence, token in enumerate(tokens)])

    def _decode(self, rows):
        """rows of (token, sequence, whether its logits are wanted); returns the best token of those."""
        batch = self.batch
        batch.n_tokens = len(rows)
        for i, (token, sequence, wanted) in enumerate(rows):
            batch.token[i] = token
            batch.pos[i] = self.lengths[sequence]
            batch.n_seq_id[i] = 1
            batch.seq_id[i][0] = sequence
            batch.logits[i] = wanted
            self.lengths[sequence] += 1
        code = llama_cpp.llama_decode(self.context, batch)
        if code != 0:
            raise RuntimeError(f"llama_decode returned {code}")
        return [self._best(i) for i, row in enumerate(rows) if row[2]]

    def _best(self, row):
        logits = llama_cpp.llama_get_logits_ith(self.context, row)
        return int(np.ctypeslib.as_array(logits, (self.vocab,)).argmax())


if __name__ == "__main__":
    child_main(Engine)
