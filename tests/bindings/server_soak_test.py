#!/usr/bin/env python3
"""Calls of every kind over HTTP: whole and streamed, by patterns, of adapters that come and go, of clients that leave, and with bodies
that are wrong. Memory stays, no page of the cache is lost, no thread is left.

usage: server_soak_test.py PLAIT FIXTURES [--large]      1,000 calls; --large: 10,000
"""
import collections
import concurrent.futures
import json
import os
import random
import re
import socket
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import server_adapters_test  # noqa: E402
import server_test  # noqa: E402
from limits import HANG_S  # noqa: E402
from server_test import MODEL, Server  # noqa: E402

CALLS, ROUNDS, CLIENTS = 1000, 10, 12
WORDS = "the sea a boat hill river and of old".split()


class Client:
    """Random calls of one server."""

    def __init__(self, server, seed):
        self.server, self.random, self.statuses = server, random.Random(seed), collections.Counter()

    def text(self):
        return " ".join(self.random.choices(WORDS, k=self.random.randint(1, 40)))

    def model(self):
        return self.random.choice([MODEL, MODEL, "boats", "sea"])

    def right(self):
        """Path and body of a call that has an answer."""
        draw, sampling = self.random, {"max_tokens": self.random.randint(1, 24), "temperature": self.random.choice([0, 1.2]), "seed": 5}
        body = {"model": self.model(), **sampling}
        if draw.random() < 0.3:
            body["structured_outputs"] = {"regex": draw.choice(["[a-c]{2,9}", "(sea|boat)( \\d){1,4}", "x*"])}
        if draw.random() < 0.3:
            body["logprobs"] = True
        if draw.random() < 0.3:
            body["n"] = draw.randint(1, 4)
        talk = [{"role": "user", "content": self.text()}]
        completion = {**body, "prompt": self.text(), "logprobs": 2} if body.pop("logprobs", False) else {**body, "prompt": self.text()}
        return draw.choice([
            ("/v1/chat/completions", {**body, "messages": talk}),
            ("/v1/chat/completions", {**body, "messages": talk, "stream": True, "logprobs": True}),
            ("/v1/completions", completion),
            ("/v1/completions", {**completion, "stream": True}),
            ("/v1/responses", {"model": MODEL, "input": self.text(), "max_output_tokens": 9}),
            ("/v1/messages", {"model": MODEL, "max_tokens": 9, "messages": talk, "stream": draw.random() < 0.5}),
            ("/v1/embeddings", {"model": MODEL, "input": [self.text(), self.text()]}),
            ("/tokenize", {"model": MODEL, "prompt": self.text()}),
        ])

    def wrong(self):
        """Of a call that is refused."""
        path, body = self.right()
        while path == "/tokenize":  # which takes any length
            path, body = self.right()
        data = json.dumps(body)
        cut = self.random.randrange(1, len(data))
        return path, self.random.choice([
            data[:cut], data[:cut] + "\0" + data[cut:], data + "}", "[" * 5000, json.dumps({**body, "model": "absent"}),
            json.dumps({**body, "model": 5}), json.dumps({**body, "temperature": "hot", "input": 5, "prompt": {}, "messages": "a"}),
            json.dumps({**body, "prompt": "sea " * 3000, "messages": [{"role": "user", "content": "sea " * 3000}], "input": 7})])

    def leave(self):
        """A call whose client goes before its answer, or within it."""
        path, body = self.right()
        data = json.dumps({**body, "max_tokens": 300, "ignore_eos": True}).encode()
        with socket.create_connection(("127.0.0.1", self.server.port), timeout=HANG_S) as raw:
            sent = b"POST %s HTTP/1.1\r\nhost: localhost\r\ncontent-length: %d\r\n\r\n" % (path.encode(), len(data)) + data
            raw.sendall(sent[:self.random.randint(1, len(sent))] if self.random.random() < 0.3 else sent)
            if self.random.random() < 0.5:
                raw.settimeout(self.random.random() * 0.05)
                try:
                    raw.recv(self.random.randint(1, 400))
                except TimeoutError:
                    pass

    def adapter(self):
        name = self.random.choice(["boats", "sea"])
        if self.random.random() < 0.5:
            return "/v1/load_lora_adapter", {"lora_name": name, "lora_path": name}
        return "/v1/unload_lora_adapter", {"lora_name": name}

    def call(self, _=None):
        kind = self.random.choices([self.right, self.wrong, self.leave, self.adapter], [55, 15, 25, 5])[0]
        if kind == self.leave:
            return self.leave()
        path, body = kind()
        status, _, read = self.server.call("POST", path, body)
        self.statuses[kind.__name__, status] += 1
        if kind == self.wrong:
            assert 400 <= status < 500, (status, body[:300], read[:300])
        elif status != 200:  # an adapter that is not there, or there already
            assert status in (400, 404, 429) and (kind == self.adapter or body["model"] in ("boats", "sea")), (status, path, read[:300])


class Soak(unittest.TestCase):
    def measured(self):
        """Resident KiB, threads; when all is drained and no page is taken."""
        self.server.wait_for("plait_requests_waiting", 0, 60)
        self.server.wait_for("plait_requests_running", 0, 60)
        self.server.wait_for("plait_open_calls", 1, 60)  # the one that asks
        self.assertEqual(self.server.metric("plait_cache_pages"), self.server.metric("plait_cache_pages_free"))
        with open(f"/proc/{self.server.process.pid}/status", encoding="utf-8") as status:
            text = status.read()
        return tuple(int(re.search(rf"{name}:\s+(\d+)", text)[1]) for name in ("VmRSS", "Threads"))

    def test_calls_leave_nothing(self):
        with tempfile.TemporaryDirectory() as folder:
            for name, text in (("boats", "the boat and the hill "), ("sea", "sea 7 of 9, sea 3 of 4, ")):
                server_adapters_test.train_adapter(folder, name, text, 0.1)
            self.server = Server(self, "--adapter-dir", os.path.join(folder, "given"), "--option", "adapter_slots=2", "--option",
                                 "adapter_rank=4", "--queue", "100", "--option", "cache_bytes=4M")  # it is written once, soon
            clients = [Client(self.server, seed) for seed in range(CLIENTS)]
            rows = []
            with concurrent.futures.ThreadPoolExecutor(CLIENTS) as pool:
                for _ in range(ROUNDS):
                    for client in [pool.submit(lambda one=one: [one.call() for _ in range(CALLS // ROUNDS // CLIENTS + 1)])
                                   for one in clients]:
                        client.result(600)
                    rows.append(self.measured())
        print("resident KiB and threads after each tenth:", rows)
        statuses = sum((client.statuses for client in clients), collections.Counter())
        print(dict(statuses))
        self.assertGreater(statuses["right", 200], CALLS // 4)
        self.assertGreater(statuses["adapter", 200], 0)
        resident, threads = zip(*rows)
        self.assertEqual(len(set(threads[1:])), 1, threads)
        half = ROUNDS // 2
        self.assertLess(max(resident[half:]), 1.1 * max(resident[:half]))


if __name__ == "__main__":
    server_test.PLAIT, server_test.FIXTURES = sys.argv[1:3]
    CALLS = 10000 if "--large" in sys.argv else CALLS
    unittest.main(argv=sys.argv[:1] + [word for word in sys.argv[3:] if word != "--large"])
