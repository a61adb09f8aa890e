#!/usr/bin/env python3
"""plait serve, over its sockets: what raw HTTP and OpenAI's own client get, how it lives under load, and what it makes of bad calls.

usage: server_test.py PLAIT FIXTURES

The client's part runs in the environment of bindings/python/get_python.sh, which `./run test` makes; without it it prints NOT RUN.
"""
import asyncio
import http.client
import importlib.util
import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import unittest

from limits import HANG_S

MODEL = "gemma3-standard23"
PROMPT = "the river and the sea"
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
ENVIRONMENT = os.path.join(ROOT, ".cache", "python", "bin", "python")


def fixture(name):
    return os.path.join(FIXTURES, name)


def missing_packages(*names):
    """Those that this Python lacks. If the environment has them the script continues there, and this does not return."""
    missing = [name for name in names if importlib.util.find_spec(name) is None]
    if missing and sys.executable != ENVIRONMENT and os.path.exists(ENVIRONMENT):
        os.execv(ENVIRONMENT, [ENVIRONMENT, *sys.argv])
    return missing


class Server:
    """A server of its own port, until the end of the test."""

    def __init__(self, case, *words, model=MODEL, wait=True, launcher=()):
        self.log = tempfile.NamedTemporaryFile("w+", suffix=".log")
        self.process = subprocess.Popen([*launcher, PLAIT, "serve", fixture(model), "--address", "127.0.0.1:0", "--threads", "1",
                                         "--cache-dir", "", *words], stderr=self.log)
        case.addCleanup(self.end)
        self.address = self.logged(r"listening at (\S+)")
        self.port = int(self.address.rpartition(":")[2]) if self.address.startswith("http") else 0
        if wait:
            self.logged("ready: ")

    def logged(self, pattern):
        deadline = time.time() + HANG_S
        while time.time() < deadline:
            with open(self.log.name) as file:
                text = file.read()
            found = re.search(pattern, text)
            if found:
                return found[found.lastindex or 0]
            if self.process.poll() is not None:
                break
            time.sleep(0.01)
        raise AssertionError(f"the server's log lacks {pattern}: {text}")

    def end(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self.log.close()

    def call(self, method, path, body=None, **headers):
        """Status, headers, body."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=HANG_S)
        data = body if body is None or isinstance(body, (bytes, str)) else json.dumps(body)
        connection.request(method, path, data, {name.replace("_", "-"): value for name, value in headers.items()})
        answer = connection.getresponse()
        read = answer.read()
        connection.close()
        return answer.status, {name.lower(): value for name, value in answer.getheaders()}, read

    def post(self, path, body, status=200, **headers):
        got, _, read = self.call("POST", path, body, **headers)
        assert got == status, (got, read)
        return json.loads(read)

    def complete(self, **fields):
        return self.post("/v1/completions", {"model": MODEL, "prompt": PROMPT, "temperature": 0, **fields})

    def metric(self, name):
        text = self.call("GET", "/metrics")[2].decode()
        found = re.findall(rf"(?m)^{name}(?:\{{[^}}]*\}})? (\S+)$", text)
        return sum(float(one) for one in found)

    def wait_for(self, name, value, seconds=10):
        deadline = time.time() + seconds
        while self.metric(name) != value:
            assert time.time() < deadline, f"{name} is {self.metric(name)}, not {value}"
            time.sleep(0.01)


def frames(read):
    """Objects of an event stream, which has to end in [DONE]."""
    rows = [line[6:] for line in read.decode().split("\n") if line.startswith("data: ")]
    assert rows[-1] == "[DONE]", read
    return [json.loads(row) for row in rows[:-1]]


class Wires(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Server(cls, "--adapter-dir", FIXTURES)

    @classmethod
    def addCleanup(cls, *arguments):
        cls.addClassCleanup(*arguments)

    def test_completions_are_those_of_generate(self):
        words = [PLAIT, "generate", fixture(MODEL), "-p", PROMPT, "-n", "12", "--temperature", "0", "--json", "--cache-dir", ""]
        alone = json.loads(subprocess.run(words, capture_output=True, check=True).stdout)
        whole = self.server.complete(max_tokens=12)
        self.assertEqual(whole["choices"][0]["text"], alone["text"])
        self.assertEqual(whole["choices"][0]["finish_reason"], "length")
        usage = whole["usage"]
        self.assertEqual((usage["completion_tokens"], usage["total_tokens"]), (12, usage["prompt_tokens"] + 12))
        status, headers, read = self.server.call("POST", "/v1/completions", {
            "model": MODEL, "prompt": PROMPT, "temperature": 0, "max_tokens": 12, "stream": True,
            "stream_options": {"include_usage": True}})
        self.assertEqual((status, headers["content-type"]), (200, "text/event-stream"))
        parts = frames(read)
        self.assertEqual("".join(part["choices"][0]["text"] for part in parts if part["choices"]), alone["text"])
        self.assertEqual(parts[-1]["usage"]["completion_tokens"], 12)
        self.assertEqual(len({part["id"] for part in parts}), 1)

    def test_prompts_of_ids_lists_echoes_and_several_outputs(self):
        ids = self.server.post("/tokenize", {"model": MODEL, "prompt": PROMPT})
        self.assertEqual(ids["count"], len(ids["tokens"]))
        text = self.server.complete(max_tokens=6)["choices"][0]["text"]
        self.assertEqual(self.server.complete(prompt=ids["tokens"], max_tokens=6)["choices"][0]["text"], text)
        both = self.server.complete(prompt=["a boat", ids["tokens"]], max_tokens=6, n=2, echo=True)
        self.assertEqual([one["index"] for one in both["choices"]], [0, 1, 2, 3])
        self.assertTrue(both["choices"][1]["text"].startswith("a boat"))
        self.assertTrue(both["choices"][2]["text"].endswith(text))
        self.assertEqual(self.server.post("/detokenize", {"model": MODEL, "tokens": ids["tokens"][1:]})["prompt"], PROMPT)
        self.assertEqual(self.server.complete(max_tokens=0)["choices"][0],
                         {"index": 0, "text": "", "logprobs": None, "finish_reason": "length"})

    def test_chat_streamed_or_not(self):
        parts = [{"type": "text", "text": "the "}, {"type": "text", "text": "sea"}]
        body = {"model": MODEL, "messages": [{"role": "developer", "content": "Be short."}, {"role": "user", "content": parts}],
                "temperature": 0, "max_completion_tokens": 8, "logprobs": True, "top_logprobs": 2}
        whole = self.server.post("/v1/chat/completions", body)["choices"][0]
        self.assertEqual(whole["message"]["role"], "assistant")
        self.assertEqual(len(whole["logprobs"]["content"]), 8)
        for one in whole["logprobs"]["content"]:
            self.assertEqual(len(one["top_logprobs"]), 2)
            self.assertEqual(one["logprob"], one["top_logprobs"][0]["logprob"])
        parts = frames(self.server.call("POST", "/v1/chat/completions", {**body, "stream": True})[2])
        self.assertEqual(parts[0]["choices"][0]["delta"], {"role": "assistant", "content": ""})
        self.assertEqual("".join(part["choices"][0]["delta"].get("content", "") for part in parts), whole["message"]["content"])
        self.assertEqual(parts[-1]["choices"][0]["finish_reason"], "length")

    def test_same_seed_same_text_in_any_company(self):
        ask = {"temperature": 1.2, "seed": 11, "max_tokens": 24, "ignore_eos": True}
        alone = self.server.complete(**ask)["choices"][0]["text"]
        texts = [None] * 12

        def run(index):
            others = {} if index % 3 == 0 else {"prompt": f"boat {index}", "seed": index}
            texts[index] = self.server.complete(**{**ask, **others})["choices"][0]["text"]

        threads = [threading.Thread(target=run, args=(index,)) for index in range(len(texts))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(set(texts[::3]), {alone})
        self.assertGreater(len(set(texts)), 4)

    def test_embeddings(self):
        both = self.server.post("/v1/embeddings", {"model": MODEL, "input": [PROMPT, "a boat"]})["data"]
        for one in both:
            self.assertAlmostEqual(sum(value * value for value in one["embedding"]), 1, delta=1e-5)
        self.assertNotEqual(both[0]["embedding"], both[1]["embedding"])
        cut = self.server.post("/v1/embeddings", {"model": MODEL, "input": PROMPT, "dimensions": 4})["data"][0]["embedding"]
        self.assertEqual(len(cut), 4)
        self.assertAlmostEqual(sum(value * value for value in cut), 1, delta=1e-5)
        self.server.post("/v1/embeddings", {"model": MODEL, "input": PROMPT, "dimensions": 4096}, status=400)

    def test_models_and_health(self):
        self.assertEqual(self.server.call("GET", "/health")[0], 200)
        self.assertEqual(self.server.call("GET", "/ready")[0], 200)
        models = json.loads(self.server.call("GET", "/v1/models")[2])
        self.assertEqual([one["id"] for one in models["data"]], [MODEL])
        self.assertEqual(json.loads(self.server.call("GET", f"/v1/models/{MODEL}")[2])["max_model_len"], 512)
        self.assertEqual(self.server.call("GET", "/v1/models/none")[0], 404)
        _, headers, _ = self.server.call("GET", "/health", x_request_id="mine")
        self.assertEqual(headers["x-request-id"], "mine")

    def test_wrong_calls(self):
        """Each is 4xx with the field's path; the server lives on."""
        chat, text = "/v1/chat/completions", "/v1/completions"
        message = {"role": "user", "content": "a"}
        base, talk = {"model": MODEL, "prompt": "a", "max_tokens": 2}, {"model": MODEL, "messages": [message], "max_tokens": 2}
        for path, body, status, param in (
                (text, "{", 400, None), (text, "[]", 400, None), (text, "", 400, None), (text, b"\xff\xfe", 400, None),
                (text, "[" * 100000, 400, None), (text, {}, 400, "model"), (text, {"model": MODEL}, 400, "prompt"),
                (text, {**base, "model": "other"}, 404, "model"), (text, {**base, "model": 5}, 400, "model"),
                (text, {**base, "prompt": {}}, 400, "prompt"), (text, {**base, "prompt": []}, 400, "prompt"),
                (text, {**base, "prompt": [1, "a"]}, 400, "prompt[1]"), (text, {**base, "prompt": [1, -5]}, 400, "prompt[1]"),
                (text, {**base, "prompt": [1, 512]}, 400, None), (text, {**base, "prompt": [1] * 600}, 400, None),
                (text, {**base, "temperature": "hot"}, 400, "temperature"), (text, {**base, "temperature": -1}, 400, "temperature"),
                (text, {**base, "top_p": 1.5}, 400, "top_p"), (text, {**base, "n": 0}, 400, "n"), (text, {**base, "n": 1.5}, 400, "n"),
                (text, {**base, "max_tokens": -1}, 400, "max_tokens"), (text, {**base, "stop": [1]}, 400, "stop[0]"),
                (text, {**base, "stop": ["a"] * 17}, 400, "stop"), (text, {**base, "logit_bias": {"x": 1}}, 400, "logit_bias.x"),
                (text, {**base, "logit_bias": {"5": "a"}}, 400, "logit_bias.5"),
                (text, {**base, "stream_options": {}}, 400, "stream_options"),
                (text, {**base, "priority": "high"}, 400, "priority"),
                (text, {**base, "suffix": "b"}, 400, "suffix"), (text, {**base, "best_of": 3}, 400, "best_of"),
                (text, '{"model": "%s", "prompt": "a", "temperature": 1e999}' % MODEL, 400, None),
                (chat, {**talk, "messages": []}, 400, "messages"), (chat, {**talk, "messages": ["a"]}, 400, "messages[0]"),
                (chat, {**talk, "messages": [{"role": "king", "content": "a"}]}, 400, "messages[0].role"),
                (chat, {**talk, "messages": [{"role": "user"}]}, 400, "messages[0].content"),
                (chat, {**talk, "messages": [message, {"role": "user", "content": [{"type": "image_url"}]}]}, 400,
                 "messages[1].content[0].type"),
                (chat, {**talk, "tools": [{"type": "function"}]}, 400, "tools[0].function"),
                (chat, {**talk, "response_format": {"type": "xml"}}, 400, "response_format.type"),
                (chat, {**talk, "top_logprobs": 3}, 400, "top_logprobs"),
                ("/v1/embeddings", {"model": MODEL, "input": ""}, 200, None),
                ("/v1/embeddings", {"model": MODEL, "input": 5}, 400, "input"),
                ("/tokenize", {"model": MODEL}, 400, "prompt"), ("/detokenize", {"model": MODEL, "tokens": ["a"]}, 400, "tokens[0]"),
                ("/v1/load_lora_adapter", {"lora_name": "a", "lora_path": "../.."}, 404, "lora_path"),
                ("/v1/unload_lora_adapter", {"lora_name": "none"}, 404, "model"),
                ("/nowhere", {}, 404, None), ("/v1/models", {}, 405, None)):
            got, headers, read = self.server.call("POST", path, body)
            self.assertEqual(got, status, (path, str(body)[:200], read))
            self.assertEqual(headers["content-type"], "application/json")
            if status != 200:
                error = json.loads(read)["error"]
                self.assertTrue(error["message"])
                self.assertEqual(error["param"], param, (path, str(body)[:200], read))
        self.assertEqual(self.server.call("GET", "/v1/completions")[0], 405)
        self.assertEqual(self.server.call("GET", "/health", host="evil.example")[0], 403)
        self.assertEqual(self.server.call("GET", "/health")[0], 200)

    def test_raw_sockets(self):
        """Heads without a form, too large, or with a wrong length of the body."""
        for data, begin in ((b"nonsense\r\n\r\n", b"HTTP/1.1 400"),
                            (b"GET /health HTTP/1.1\r\nhost: localhost\r\nx: " + b"a" * 200000 + b"\r\n\r\n", b"HTTP/1.1 431"),
                            (b"POST /v1/completions HTTP/1.1\r\nhost: localhost\r\ncontent-length: 99999999999\r\n\r\n", b"HTTP/1.1 413"),
                            (b"POST /v1/completions HTTP/1.1\r\nhost: localhost\r\ncontent-length: 5\r\n"
                             b"transfer-encoding: chunked\r\n\r\nzz\r\n", b"HTTP/1.1 400")):
            with socket.create_connection(("127.0.0.1", self.server.port), timeout=HANG_S) as raw:
                try:
                    raw.sendall(data)
                    got = raw.recv(100)
                except ConnectionError:
                    got = b""
            self.assertTrue(got.startswith(begin) or got == b"", (data[:60], got))
        self.assertEqual(self.server.call("GET", "/health")[0], 200)

    def test_page(self):
        """What it loads is there, from this server only; page_test.py opens it in a browser."""
        status, headers, read = self.server.call("GET", "/")
        self.assertEqual((status, headers["content-type"]), (200, "text/html; charset=utf-8"))
        self.assertIn("default-src 'self'", headers["content-security-policy"])
        for name in re.findall(r'(?:src|href)="([^"]+)"', read.decode()):
            if not name.startswith("data:"):
                self.assertEqual(self.server.call("GET", "/" + name)[0], 200, name)
        self.assertEqual(Server(self, "--no-page").call("GET", "/")[0], 404)

    def test_metrics_are_prometheus(self):
        self.server.complete(max_tokens=2)
        text = self.server.call("GET", "/metrics")[2].decode()
        for line in text.splitlines():
            self.assertRegex(line, r"^(# (HELP|TYPE) plait_\w+ .+|plait_\w+(\{(\w+=\"[^\"]*\",?)+\})? [-+0-9.e]+)$")
        for name in ("step_seconds", "step_samples", "step_tokens", "request_prompt_tokens", "request_new_tokens"):
            below = [int(count) for count in re.findall(rf"plait_{name}_bucket\{{[^}}]*\}} (\d+)", text)]
            self.assertEqual(below, sorted(below))
            self.assertEqual(below[-1], int(re.search(rf"plait_{name}_count\{{[^}}]*\}} (\d+)", text)[1]))
            self.assertGreater(below[-1], 0, name)
        self.assertGreaterEqual(self.server.metric("plait_generation_tokens_total"), 2)

    def test_several_models(self):
        """Each answers as by itself; their metrics stand together."""
        several = Server(self, "--name", "one", "--also", f"two={fixture('llama-standard23')}", "--also", fixture(MODEL), wait=False)
        self.assertTrue(all(several.logged(f"ready: {name} at") for name in ("one", "two", MODEL)))
        self.assertEqual([row["id"] for row in json.loads(several.call("GET", "/v1/models")[2])["data"]], sorted(["one", "two", MODEL]))
        ids = {"prompt": [5, 6, 7], "max_tokens": 8, "temperature": 0}
        text = self.server.post("/v1/completions", {"model": MODEL, **ids})["choices"][0]["text"]
        for name in ("one", MODEL):
            self.assertEqual(several.post("/v1/completions", {"model": name, **ids})["choices"][0]["text"], text)
        lines = several.call("GET", "/metrics")[2].decode().splitlines()
        self.assertEqual(sum(line.startswith(("# TYPE plait_steps_total ", "# TYPE plait_step_tokens ")) for line in lines), 2)
        self.assertEqual({line.split('"')[1] for line in lines if line.startswith("plait_steps_total")}, {"one", "two", MODEL})
        self.assertEqual(several.post("/v1/completions", {"model": "three", **ids}, 404)["error"]["code"], "model_not_found")


class Life(unittest.TestCase):
    """How it lives: clients that leave, too many of them, its end."""

    def stream(self, server, **fields):
        """A raw connection whose answer is under way."""
        body = json.dumps({"model": MODEL, "prompt": PROMPT, "max_tokens": 480, "ignore_eos": True, "stream": True, **fields}).encode()
        raw = socket.create_connection(("127.0.0.1", server.port), timeout=HANG_S)
        raw.sendall(b"POST /v1/completions HTTP/1.1\r\nhost: localhost\r\ncontent-length: %d\r\n\r\n" % len(body) + body)
        self.assertTrue(raw.recv(20).startswith(b"HTTP/1.1 200"))
        return raw

    def test_clients_that_leave_cancel_their_requests(self):
        server = Server(self)
        for _ in range(3):
            self.stream(server, n=8).close()
        server.wait_for("plait_open_calls", 1)  # the one that reads the metrics
        server.wait_for("plait_requests_running", 0)
        self.assertGreaterEqual(server.metric("plait_request_cancelled_total"), 2)  # one may have been over before
        # Also before anything is sent: answers that are not streamed.
        body = json.dumps({"model": MODEL, "prompt": PROMPT, "max_tokens": 480, "ignore_eos": True, "n": 32}).encode()
        before = server.metric("plait_request_cancelled_total")
        with socket.create_connection(("127.0.0.1", server.port)) as raw:
            raw.sendall(b"POST /v1/completions HTTP/1.1\r\nhost: localhost\r\ncontent-length: %d\r\n\r\n" % len(body) + body)
            time.sleep(0.02)
        server.wait_for("plait_request_cancelled_total", before + 1)
        server.wait_for("plait_requests_running", 0)
        pages, free = server.metric("plait_cache_pages"), server.metric("plait_cache_pages_free")
        self.assertEqual(pages, free)

    def test_too_many_are_refused_with_when_to_come_back(self):
        server = Server(self, "--queue", "2", "--option", "running=1")
        statuses, waits = [], []

        def run():
            status, headers, _ = server.call("POST", "/v1/completions", {"model": MODEL, "prompt": PROMPT, "max_tokens": 200,
                                                                         "ignore_eos": True})
            statuses.append(status)
            if status == 429:
                waits.append(int(headers["retry-after"]))

        threads = [threading.Thread(target=run) for _ in range(16)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(set(statuses), {200, 429})
        self.assertGreaterEqual(statuses.count(200), 1)
        self.assertTrue(all(1 <= one <= 60 for one in waits))

    def test_who_waits_as_told_gets_in(self):
        """Places of a full queue are told one by one, at the rate at which requests end."""
        server = Server(self, "--queue", "2", "--option", "running=1")
        body = {"model": MODEL, "prompt": PROMPT, "max_tokens": 490, "ignore_eos": True}
        began = time.time()
        for _ in range(4):
            server.post("/v1/completions", body)
        alone = (time.time() - began) / 4
        told, tries = [], []

        def run():
            tries.append(1)
            while True:
                status, headers, _ = server.call("POST", "/v1/completions", body)
                if status == 200:
                    return
                wait = int(headers["retry-after-ms"]) / 1000
                self.assertEqual(int(headers["retry-after"]), -(-int(headers["retry-after-ms"]) // 1000))
                told.append(wait)
                tries.append(1)
                time.sleep(wait)

        threads = [threading.Thread(target=run) for _ in range(12)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        first = told[:9]  # of the twelve, one runs and two wait
        self.assertGreater(max(first) - min(first), 4 * alone)
        self.assertLess(max(first), 20 * alone + 1)
        self.assertLessEqual(len(tries), 12 + 9 * 2)

    def test_many_streams_and_slow_readers(self):
        """Streams that are not read stop no others, and lose nothing."""
        server = Server(self, "--queue", "512")
        slow = [self.stream(server, temperature=0, max_tokens=300) for _ in range(20)]
        fast = [threading.Thread(target=server.complete, kwargs={"max_tokens": 8}) for _ in range(100)]
        for thread in fast:
            thread.start()
        for thread in fast:
            thread.join()
        ends = []  # of each: how many last frames
        for raw in slow:
            got = b""
            while b"data: [DONE]" not in got:
                more = raw.recv(65536)
                self.assertTrue(more)
                got += more
            ends.append(got.count(b'"finish_reason":"length"'))
            raw.close()
        self.assertEqual(ends, [1] * 20)
        threads = len(os.listdir(f"/proc/{server.process.pid}/task"))
        self.assertLess(threads, 16)

    def test_sigterm_drains(self):
        server = Server(self)
        raw = self.stream(server, max_tokens=400)
        self.addCleanup(raw.close)
        server.process.send_signal(signal.SIGTERM)
        got = b""
        while more := raw.recv(65536):
            got += more
        self.assertIn(b"data: [DONE]", got)
        self.assertEqual(server.process.wait(30), 0)
        with self.assertRaises(OSError):
            socket.create_connection(("127.0.0.1", server.port), timeout=HANG_S)

    def test_what_does_not_end_in_time_is_ended_with_an_error(self):
        server = Server(self, "--drain", "0")
        raw = self.stream(server, max_tokens=490, n=64)
        self.addCleanup(raw.close)
        server.process.send_signal(signal.SIGTERM)
        got = b""
        while more := raw.recv(65536):
            got += more
        self.assertIn(b'"code":"shutting_down"', got[-300:])
        self.assertEqual(server.process.wait(30), 0)

    def test_priorities_and_limits_of_the_wait(self):
        """While one runs: what is urgent starts first, and prompts beyond the queue's tokens are refused."""
        server = Server(self, "--option", "running=1", "--option", "queue_tokens=40")
        statuses = []

        def run():
            body = {"model": MODEL, "prompt": PROMPT, "max_tokens": 4, "priority": 1}
            statuses.append(server.call("POST", "/v1/completions", body)[0])

        running = self.stream(server, n=128)
        patient = threading.Thread(target=run)
        patient.start()
        server.wait_for("plait_requests_waiting", 1)
        urgent = self.stream(server, n=128)
        server.wait_for("plait_requests_waiting", 2)
        self.assertGreater(server.metric("plait_waiting_prompt_tokens"), 0)
        status, headers, _ = server.call("POST", "/v1/completions", {"model": MODEL, "prompt": [5] * 40, "max_tokens": 4})
        self.assertEqual(status, 429)
        self.assertIn("retry-after", headers)
        running.close()
        server.wait_for("plait_requests_running", 128)
        server.wait_for("plait_requests_waiting", 1)  # the patient one, which came first
        urgent.close()
        patient.join()
        self.assertEqual(statuses, [200])
        self.assertGreater(server.metric("plait_step_seconds_total"), 0)
        self.assertGreater(server.metric("plait_sampling_seconds_total"), 0)

    def test_keys_origins_and_limits(self):
        with tempfile.TemporaryDirectory() as folder:
            keys = os.path.join(folder, "keys.txt")
            with open(keys, "w") as file:
                file.write("first\nsecond-key\n")
            server = Server(self, "--api-key", f"@{keys}", "--cors-origin", "https://page.example", "--max-body", "2K")
            self.assertEqual(server.call("GET", "/health")[0], 200)
            for headers, status in (({}, 401), ({"authorization": "Bearer firs"}, 401), ({"authorization": "Bearer first"}, 200),
                                    ({"authorization": "Bearer second-key"}, 200), ({"authorization": "bearer first"}, 200),
                                    ({"authorization": "BearerX first"}, 401), ({"x_api_key": "first"}, 200),
                                    ({"authorization": "Bearer "}, 401), ({"authorization": "Bearer firstfirst"}, 401)):
                self.assertEqual(server.call("GET", "/v1/models", **headers)[0], status, headers)
            status, headers, _ = server.call("OPTIONS", "/v1/chat/completions")
            self.assertEqual((status, headers["access-control-allow-origin"]), (204, "https://page.example"))
            crowd = Server(self, "--max-body", "2K", "--max-bodies", "3K")
            halves = []
            for _ in range(2):  # each holds what came of its body
                halves.append(socket.create_connection(("127.0.0.1", crowd.port)))
                self.addCleanup(halves[-1].close)
                halves[-1].sendall(b"POST /v1/completions HTTP/1.1\r\nhost: localhost\r\ncontent-length: 2000\r\n\r\n" + b" " * 1400)
            time.sleep(0.3)
            body = json.dumps({"model": MODEL, "prompt": "a" * 800, "max_tokens": 1})
            status, headers, _ = crowd.call("POST", "/v1/completions", body)
            self.assertEqual((status, headers.get("retry-after")), (429, "1"))
            for one in halves:
                one.close()
            time.sleep(0.3)
            self.assertEqual(crowd.call("POST", "/v1/completions", json.dumps({"model": MODEL, "prompt": "a", "max_tokens": 1}))[0], 200)
            large = {"model": MODEL, "prompt": "a" * 4000}
            self.assertEqual(server.call("POST", "/v1/completions", large, authorization="Bearer first")[0], 413)

    def test_long_prompts_leave_a_worker(self):
        server, answers = Server(self), []
        long = {"model": MODEL, "prompt": PROMPT * (2_000_000 // len(PROMPT)), "max_tokens": 1}
        threads = [threading.Thread(target=lambda: answers.append((server.call("POST", "/v1/completions", long), time.monotonic())))
                   for _ in range(3)]
        for one in threads:
            one.start()
        time.sleep(0.2)  # two would be read by now, if two were
        for _ in range(3):
            self.assertEqual(server.call("GET", "/metrics")[0], 200)
            self.assertEqual(len(server.complete(max_tokens=2)["choices"]), 1)
        answered = time.monotonic()
        for one in threads:
            one.join()
        self.assertEqual([status for (status, _, _), _ in answers], [400] * 3)
        self.assertIn("the context", str(answers[0][0]))
        self.assertLess(sum(end < answered for _, end in answers), 2)  # no call waits for these; the first may end meanwhile

    def test_unix_socket_and_mesh(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "plait.sock")
            Server(self, "--address", f"unix:{path}", "--mesh", "tensor=2")
            with socket.socket(socket.AF_UNIX) as raw:
                raw.connect(path)
                body = json.dumps({"model": MODEL, "prompt": PROMPT, "max_tokens": 12, "temperature": 0}).encode()
                raw.sendall(b"POST /v1/completions HTTP/1.1\r\nhost: a\r\nconnection: close\r\n"
                            b"content-length: %d\r\n\r\n" % len(body) + body)
                got = b""
                while more := raw.recv(65536):
                    got += more
            text = json.loads(got.split(b"\r\n\r\n", 1)[1])["choices"][0]["text"]
            self.assertEqual(text, Server(self).complete(max_tokens=12)["choices"][0]["text"])

    def test_a_model_that_cannot_be_loaded_ends_the_program(self):
        words = [PLAIT, "serve", "/no/such/model", "--address", "127.0.0.1:0"]
        done = subprocess.run(words, capture_output=True, text=True, timeout=HANG_S)
        self.assertEqual(done.returncode, 1)
        self.assertIn("/no/such/model", done.stderr)
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            words[2:] = [fixture(MODEL), "--host", "127.0.0.1", "--port", str(taken.getsockname()[1])]
            done = subprocess.run(words, capture_output=True, text=True, timeout=HANG_S)
        self.assertEqual(done.returncode, 1)
        self.assertIn(f"cannot listen on 127.0.0.1:{words[-1]}", done.stderr)


class OpenAi(unittest.TestCase):
    """OpenAI's own client."""

    @classmethod
    def setUpClass(cls):
        import openai
        cls.openai = openai

    def setUp(self):
        self.server = Server(self)
        self.client = self.openai.OpenAI(base_url=f"http://127.0.0.1:{self.server.port}/v1", api_key="none", max_retries=0)
        self.addCleanup(self.client.close)

    def test_chat(self):
        ask = {"model": MODEL, "messages": [{"role": "user", "content": "the sea"}], "temperature": 0, "max_completion_tokens": 8}
        whole = self.client.chat.completions.create(**ask, n=2, logprobs=True, top_logprobs=1)
        self.assertEqual((len(whole.choices), whole.choices[0].finish_reason, whole.usage.completion_tokens), (2, "length", 16))
        self.assertEqual(whole.choices[0].message.content, whole.choices[1].message.content)
        text = ""
        for part in self.client.chat.completions.create(**ask, stream=True, stream_options={"include_usage": True}):
            text += "".join(choice.delta.content or "" for choice in part.choices)
        self.assertEqual(text, whole.choices[0].message.content)
        self.assertEqual(part.usage.completion_tokens, 8)
        with self.client.chat.completions.stream(**ask) as stream:
            self.assertEqual("".join(event.delta for event in stream if event.type == "content.delta"), text)

    def test_completions_embeddings_and_models(self):
        self.assertTrue(self.client.completions.create(model=MODEL, prompt=PROMPT, max_tokens=4).choices[0].text)
        vectors = self.client.embeddings.create(model=MODEL, input=[PROMPT, "a boat"])  # asks for base64
        self.assertEqual(len(vectors.data[1].embedding), 48)
        self.assertEqual([one.id for one in self.client.models.list()], [MODEL])

    def test_errors_are_its_own_exceptions(self):
        ask = {"messages": [{"role": "user", "content": "a"}]}
        with self.assertRaises(self.openai.NotFoundError) as caught:
            self.client.chat.completions.create(model="other", **ask)
        self.assertEqual((caught.exception.code, caught.exception.param), ("model_not_found", "model"))
        with self.assertRaises(self.openai.BadRequestError) as caught:
            self.client.chat.completions.create(model=MODEL, temperature=-1, **ask)
        self.assertEqual(caught.exception.param, "temperature")

    def test_leaving_a_stream_cancels_it(self):
        stream = self.client.completions.create(model=MODEL, prompt=PROMPT, max_tokens=480, stream=True, n=8,
                                                extra_body={"ignore_eos": True})
        next(iter(stream))
        stream.close()
        self.server.wait_for("plait_requests_running", 0)

    def test_a_hundred_tasks(self):
        async def all_of_them():
            async with self.openai.AsyncOpenAI(base_url=f"http://127.0.0.1:{self.server.port}/v1", api_key="none") as client:
                async def one(index):
                    stream = await client.completions.create(model=MODEL, prompt=f"boat {index}", max_tokens=6, stream=True)
                    return [part async for part in stream]
                return await asyncio.gather(*(one(index) for index in range(100)))
        ends = [parts[-1].choices[0].finish_reason for parts in asyncio.run(all_of_them())]
        self.assertEqual((len(ends), set(ends) - {"length", "stop"}), (100, set()))


if __name__ == "__main__":
    PLAIT, FIXTURES = sys.argv[1:3]
    if missing_packages("openai"):
        print("NOT RUN: OpenAI's client is not there; bindings/python/get_python.sh fetches it")
        del OpenAi
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
