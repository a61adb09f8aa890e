#!/usr/bin/env python3
"""Plait through its C interface (bindings/c/plait.h) by ctypes, in a child process of its own: see measure.py.

The library is $PLAIT_LIBRARY, or the release build's.
"""

import ctypes
import json
import os
import time
from ctypes import POINTER, c_char_p, c_float, c_int32, c_int64, c_void_p
from pathlib import Path

from measure import Timing, child_main

BUILT = Path(__file__).resolve().parents[2] / "build" / "release" / "bindings" / "c" / "libplait.so"
OK, TIMEOUT = 0, 8
EVENT_TOKEN = 1
FOR_EVER = -1
# Room in the cache beyond a sequence's own tokens: its last page is seldom full.
SPARE_TOKENS = 64


class View(ctypes.Structure):
    _fields_ = [("struct_size", c_int64), ("dtype", c_int32), ("rank", c_int32), ("dims", c_int64 * 8),
                ("elements", c_int64), ("bytes", c_int64), ("data", c_void_p)]


class Event(ctypes.Structure):
    _fields_ = [("struct_size", c_int64), ("kind", c_int32), ("finish", c_int32), ("sample", c_int32),
                ("token", c_int32), ("logprob", c_float), ("top_count", c_int32), ("top_tokens", POINTER(c_int32)),
                ("top_logprobs", POINTER(c_float)), ("text", c_char_p), ("text_length", c_int64),
                ("logits", POINTER(c_float)), ("logits_count", c_int64)]


class Library:
    """plait.h's functions as methods that raise the text of plait_last_error()."""

    def __init__(self):
        path = os.environ.get("PLAIT_LIBRARY", BUILT)
        if not Path(path).exists():
            raise FileNotFoundError(f"{path} is not there: build Plait first (./run cli --version)")
        self._library = ctypes.CDLL(str(path))
        for name in ("plait_version", "plait_last_error", "plait_tensor_text"):
            getattr(self._library, name).restype = c_char_p
        self.version = self._library.plait_version().decode()

    def __getattr__(self, name):
        function = getattr(self._library, "plait_" + name)

        def call(*arguments):
            status = function(*arguments)
            if status not in (OK, TIMEOUT):
                raise RuntimeError(f"plait_{name}: {self._library.plait_last_error().decode()}")
            return status

        return call

    def text(self, tensor):
        """The text of a result, which is released."""
        text = self._library.plait_tensor_text(tensor).decode()
        self.tensor_release(tensor)
        return text

    def options(self, **values):
        made = c_void_p()
        self.options_create(ctypes.byref(made))
        for key, value in values.items():
            self.options_set(made, key.encode(), str(value).encode(), c_int64(-1))
        return made


class Engine:
    def __init__(self, job):
        self.library, self.job = Library(), job
        self.model, self.generator = c_void_p(), c_void_p()
        self.sequences = 0
        # Token ids go in and come out: no tokenizer is needed.
        options = self.library.options(tokenizer="none")
        self.library.model_open(job["model"].encode(), options, ctypes.byref(self.model))
        self.library.options_release(options)
        info = c_void_p()
        self.library.model_info(self.model, ctypes.byref(info))
        self.cache_bytes = json.loads(self.library.text(info))["cache_bytes_per_token"]
        self.notes = [f"Plait {self.library.version}"]
        self._need_generator(1)

    def generate(self, prompts, new_tokens):
        self._need_generator(len(prompts))
        start = time.perf_counter()
        requests = [self.submit(prompt, new_tokens) for prompt in prompts]
        ids = [[self.next(request, FOR_EVER)] for request in requests]
        early = sum(self._drain(request, made, new_tokens) for request, made in zip(requests, ids))
        first = time.perf_counter()
        while any(len(made) < new_tokens for made in ids):
            for request, made in zip(requests, ids):
                if len(made) < new_tokens:
                    made.append(self.next(request, FOR_EVER))
        rest = time.perf_counter() - first
        for request in requests:
            self.library.request_release(request)
        return Timing(first - start, rest, ids, len(prompts) * (new_tokens - 1) - early)

    def _need_generator(self, sequences):
        """A generator whose cache holds just so many sequences, as the other engines' do."""
        if sequences == self.sequences:
            return
        self.library.generator_release(self.generator)
        longest = max(self.job["prompts"]) + self.job["decode"] + SPARE_TOKENS
        # A mesh whose ranks all hold what they cannot cut needs more for the same.
        ranks = 2 if self.job.get("options", {}).get("mesh") else 1
        options = self.library.options(threads=self.job["threads"], cache_bytes=ranks * sequences * longest * self.cache_bytes,
                                       **self.job.get("options", {}))
        self.library.generator_create(self.model, options, ctypes.byref(self.generator))
        self.library.options_release(options)
        self.library.generator_wait(self.generator, c_int64(FOR_EVER))
        self.sequences = sequences

    def submit(self, prompt, new_tokens):
        options = self.library.options(max_tokens=new_tokens, temperature=0, ignore_eos="true")
        request = c_void_p()
        self.library.generator_submit_ids(self.generator, (c_int32 * len(prompt))(*prompt), c_int64(len(prompt)),
                                          options, None, ctypes.byref(request))
        self.library.options_release(options)
        return request

    def next(self, request, timeout_ms=FOR_EVER):
        """The next token; None when there is none in time."""
        event = Event(struct_size=ctypes.sizeof(Event))
        if self.library.request_next(request, c_int64(timeout_ms), ctypes.byref(event)) == TIMEOUT:
            return None
        if event.kind != EVENT_TOKEN:
            raise RuntimeError(f"the request ended early (event {event.kind}, finish {event.finish})")
        return event.token

    def _drain(self, request, made, new_tokens):
        """Takes what a request has ready: prompts that came first decode while the last ones are still read."""
        before = len(made)
        while len(made) < new_tokens and (token := self.next(request, 0)) is not None:
            made.append(token)
        return len(made) - before


if __name__ == "__main__":
    child_main(Engine)
