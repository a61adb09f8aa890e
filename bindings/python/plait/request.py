"""Prompts under way."""
from __future__ import annotations

import asyncio
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, AsyncIterator, Callable, Iterator, Optional

import numpy

from . import native
from .mailbox import Mailbox
from .objects import NativeObject
from .tensor import Tensor
from .waiting import in_turns, interruptible

Array = numpy.ndarray[Any, Any]
Sampler = Callable[[Array], int]
END, TOKEN, FINISH, LOGITS, PROMPT = range(5)  # kinds of events


class Finish(IntEnum):
    """How a sample ended."""

    NONE = 0
    EOS = 1
    STOP = 2
    LENGTH = 3
    CANCELLED = 4
    ERROR = 5


@dataclass(frozen=True)
class Token:
    """What a request gives: a token with its text, the end of a sample without a token (id None), or with the option host_sampling
    logits, f32 [v], after which `Request.push` must follow."""

    sample: int
    id: Optional[int]
    text: str
    finish: Finish
    logprob: Optional[float]
    top: tuple[tuple[int, float], ...]  # with the option logprobs: the likeliest tokens and their logarithms
    logits: Optional[Array]
    stop: Optional[int]  # which text of the option stop, from 0, ended the sample
    rank: Optional[int]  # its place among all tokens by logprob, 1: the most likely; None without
    prompt: bool  # with the option prompt_logprobs: one of the prompt's tokens, which come first; logprob is None of the first


@dataclass(frozen=True)
class Usage:
    """Tokens, and seconds since it was submitted."""

    prompt_tokens: int
    cached_tokens: int
    new_tokens: int
    queued_s: float
    first_token_s: float
    total_s: float
    prefill_s: float
    seed: int


class Request(NativeObject):
    """A prompt that was submitted. Iterating pulls its tokens as they are generated; leaving the loop cancels it, as closing it does.
    Threads that pull at once share the tokens."""

    def __init__(self, handle: int, keeps: Any, sampler: Optional[Sampler] = None) -> None:
        super().__init__(handle, native.plait_request_release, keeps)
        self.sampler = sampler

    def next(self, timeout: Optional[float] = None) -> Optional[Token]:
        """The next token; None at the end. Raises Timeout after `timeout` seconds."""
        event = native.Event()
        while True:
            in_turns(lambda left: native.plait_request_next(self, left, event), timeout)
            if event.kind == END:
                return None
            if event.kind != LOGITS or self.sampler is None:
                return token_of(event)
            self.push(self.sampler(numpy.frombuffer(event.logits, numpy.float32)))

    def __iter__(self) -> Iterator[Token]:
        ended = False
        try:
            while (token := self.next()) is not None:
                yield token
            ended = True
        finally:
            if not ended and not self.closed:
                self.cancel()

    async def __aiter__(self) -> AsyncIterator[Token]:
        ended = False
        try:
            while (token := await asyncio.to_thread(self.next)) is not None:
                yield token
            ended = True
        finally:
            if not ended and not self.closed:
                self.cancel()

    def text(self) -> str:
        """All text of sample 0; waits for the end."""
        return "".join(token.text for token in self if token.sample == 0)

    def ids(self) -> list[int]:
        """All tokens of sample 0; waits for the end."""
        return [token.id for token in self if token.sample == 0 and token.id is not None and not token.prompt]

    def attach(self, mailbox: Optional[Mailbox], tag: int = 0) -> None:
        """From now on `tag` is posted to the mailbox (None: none) when there is something to pull, and again after a pull timed out."""
        native.plait_request_attach(self, mailbox, tag)

    def push(self, token: int) -> None:
        """With the option host_sampling: the token that follows the logits pulled last."""
        native.plait_request_push(self, int(token))

    def cancel(self) -> None:
        """Ends it soon: its samples finish with CANCELLED."""
        native.plait_request_cancel(self)

    def usage(self) -> Usage:
        """So far."""
        filled = native.Usage()
        native.plait_request_usage(self, filled)
        return Usage(**{name: getattr(filled, name) for name in Usage.__dataclass_fields__})

    def result(self) -> Array:
        """Of the kinds score (logits [s, v]) and embed (hidden states [s, h], or [h] with pooling); waits for the end."""
        return Tensor(interruptible(lambda: native.plait_request_result(self), self.cancel)).numpy()

    def save(self) -> bytes:
        """The conversation that was kept (option keep), for Generator.restore."""
        return Tensor(native.plait_request_save(self)).numpy().tobytes()


def token_of(event: Any) -> Token:
    """A copy of the event."""
    tops = numpy.frombuffer(event.top_tokens, numpy.int32).tolist()
    shares = numpy.frombuffer(event.top_logprobs, numpy.float32).tolist()
    logprob = event.logprob
    return Token(sample=event.sample, id=event.token if event.token >= 0 else None, text=event.text, finish=Finish(event.finish),
                 logprob=None if logprob != logprob else logprob, top=tuple(zip(tops, shares)),
                 logits=numpy.frombuffer(event.logits, numpy.float32) if event.kind == LOGITS else None,
                 stop=event.stop if event.stop >= 0 else None, rank=event.rank or None,
                 prompt=event.kind == PROMPT)
