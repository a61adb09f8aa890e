"""The load of `./run bench serve`: streams of completions over raw sockets, by one thread that parses nothing but frames' beginnings, so
that it leaves the processors to the server. Every server is driven by it."""

import json
import random
import selectors
import socket
import time
from dataclasses import dataclass, field

LOWEST_ID, HIGHEST_ID = 1000, 30000


@dataclass
class Sizes:
    """Tokens of prompts and answers, from and to; of every second prompt so many are one of a few shared beginnings."""

    prompt: tuple
    answer: tuple
    shared: int


def workload(sizes, count, seed):
    """[(prompt's ids, answer's tokens)]: the same for a seed."""
    rng = random.Random(seed)

    def ids(length):
        return rng.choices(range(LOWEST_ID, HIGHEST_ID), k=length)

    beginnings = [ids(sizes.shared) for _ in range(4)]
    out = []
    for i in range(count):
        length = rng.randint(*sizes.prompt)
        begin = rng.choice(beginnings)[:length - 1] if i % 2 else []
        out.append((begin + ids(length - len(begin)), rng.randint(*sizes.answer)))
    return out


@dataclass
class Answer:
    """One call's times in seconds: when it was sent (of a clock), then since that; `gaps` lie between frames with tokens."""

    sent: float
    status: int = 0
    first: float = 0
    total: float = 0
    tokens: int = 0
    gaps: list = field(default_factory=list)


class Call:
    """A call under way. The connection is closed after it."""

    def __init__(self, port, prompt, tokens, model):
        body = json.dumps({"model": model, "prompt": prompt, "max_tokens": tokens, "temperature": 0, "ignore_eos": True, "stream": True,
                           "stream_options": {"include_usage": True}}).encode()
        self.answer = Answer(time.perf_counter())
        self.read, self.last = b"", 0.0
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=600)
        self.socket.sendall(b"POST /v1/completions HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: close\r\ncontent-type: application/json\r\n"
                            b"content-length: %d\r\n\r\n" % len(body) + body)

    def pull(self):
        """Whether it is over."""
        data = self.socket.recv(1 << 16)
        since = time.perf_counter() - self.answer.sent
        if data:
            frames = data.count(b"data: {")
            if frames and self.answer.first == 0:
                self.answer.first = since
            elif frames:
                self.answer.gaps.append(since - self.last)
            if frames:
                self.last = since
            self.read = (self.read + data)[-4096:] if self.answer.status else self.read + data
            if not self.answer.status and len(self.read) > 12:
                self.answer.status = int(self.read[9:12])
            return False
        self.answer.total = since
        self.socket.close()
        _, _, count = self.read.rpartition(b'"completion_tokens":')
        digits = count.strip().split(b",")[0].split(b"}")[0]
        if self.answer.status == 200:
            if not digits.isdigit():
                raise RuntimeError(f"a stream ended without its usage: {self.read[-300:]}")
            self.answer.tokens = int(digits)
        return True


class Load:
    """Calls under way at once, of one server."""

    def __init__(self, port, model):
        self.port, self.model = port, model
        self.selector = selectors.DefaultSelector()
        self.answers = []

    def start(self, request):
        call = Call(self.port, *request, self.model)
        self.selector.register(call.socket, selectors.EVENT_READ, call)
        return call

    def running(self):
        return len(self.selector.get_map())

    def wait(self, timeout=None):
        """Takes what has come; how many calls are over."""
        over = 0
        for key, _ in self.selector.select(timeout):
            sock = key.fileobj
            if key.data.pull():
                self.selector.unregister(sock)
                self.answers.append(key.data.answer)
                over += 1
        return over

    def wait_for_first(self):
        """Until each call under way has its first token."""
        while any(key.data.answer.first == 0 for key in self.selector.get_map().values()):
            self.wait()

    def leave(self):
        """Closes all that is open."""
        for key in list(self.selector.get_map().values()):
            self.selector.unregister(key.fileobj)
            key.fileobj.close()


def closed_loop(port, model, requests, streams):
    """So many streams, each of which sends the next call when its last one is over. Answers, seconds, and this thread's seconds of
    processor."""
    load, waiting = Load(port, model), list(reversed(requests))
    begin, busy = time.perf_counter(), time.process_time()
    while waiting or load.running():
        while waiting and load.running() < streams:
            load.start(waiting.pop())
        load.wait()
    return load.answers, time.perf_counter() - begin, time.process_time() - busy


def open_loop(port, model, requests, rate, seed):
    """Calls at random times (Poisson), so many a second, whatever becomes of them. Answers."""
    load, rng = Load(port, model), random.Random(seed)
    due = begin = time.perf_counter()
    for request in requests:
        due += rng.expovariate(rate)
        while (left := due - time.perf_counter()) > 0:
            load.wait(left)
        load.start(request)
    while load.running():
        load.wait()
    return load.answers, time.perf_counter() - begin


def quantile(values, share):
    """The nearest rank; None of no values."""
    ranked = sorted(values)
    return ranked[min(int(share * len(ranked)), len(ranked) - 1)] if ranked else None
