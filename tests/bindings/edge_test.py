#!/usr/bin/env python3
"""plait serve: clients of HTTP/1.1 that are slow, leave half-way or say two things about one body, and conversations made to cost.

usage: edge_test.py PLAIT FIXTURES

What clients of HTTP/2 can do is in tls_test.py.
"""
import json
import os
import socket
import sys
import time
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import server_test  # noqa: E402
from limits import HANG_S  # noqa: E402
from server_test import MODEL, PROMPT, Server  # noqa: E402
from structured_test import PLAIN, WithServer  # noqa: E402

BODY = json.dumps({"model": MODEL, "prompt": PROMPT, "max_tokens": 480, "ignore_eos": True, "n": 16}).encode()
HEAD = b"POST /v1/completions HTTP/1.1\r\nhost: localhost\r\ncontent-length: %d\r\n\r\n" % len(BODY)


class Sockets(unittest.TestCase):
    def connect(self, server, data=b""):
        raw = socket.create_connection(("127.0.0.1", server.port), timeout=HANG_S)
        self.addCleanup(raw.close)
        raw.sendall(data)
        return raw

    def rest(self, raw):
        """All that comes until the server closes."""
        got = b""
        try:
            while more := raw.recv(65536):
                got += more
        except ConnectionError:
            pass
        return got

    def test_slow_heads_and_bodies_end(self):
        """Bytes that come one by one do not put the end off."""
        server = Server(self, "--idle-ms", "400", "--body-ms", "400")
        for begin, drop, answer in ((b"GET /health HTTP/1.1\r\nhost: localhost\r\nx: ", b"a", b""),
                                    (HEAD, b" ", b"HTTP/1.1 408")):
            raw = self.connect(server, begin)
            raw.settimeout(0.1)
            got, began = b"", time.time()
            while time.time() - began < HANG_S:
                try:
                    more = raw.recv(65536)
                    got += more
                    if not more:
                        break
                except TimeoutError:
                    pass
                except ConnectionError:
                    break
                try:
                    raw.sendall(drop)
                except ConnectionError:
                    break
            self.assertLess(time.time() - began, HANG_S)
            self.assertTrue(got.startswith(answer), got)
        self.assertEqual(server.call("GET", "/health")[0], 200)
        server.wait_for("plait_open_calls", 1)

    def test_half_closed_sockets_have_left(self):
        """A client that sends no more has left, whether its answer waits or runs: its request is cancelled."""
        server = Server(self)
        raw = self.connect(server, HEAD + BODY)
        raw.shutdown(socket.SHUT_WR)
        self.rest(raw)
        server.wait_for("plait_requests_running", 0)
        server.wait_for("plait_cache_pages_free", server.metric("plait_cache_pages"))
        half = self.connect(server, HEAD + BODY[:20])
        half.shutdown(socket.SHUT_WR)
        self.assertNotIn(b"HTTP/1.1 200", self.rest(half))
        server.wait_for("plait_open_calls", 1)

    def test_more_connections_than_allowed_are_closed(self):
        server = Server(self, "--max-connections", "3")
        begin = b"GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n"
        held = [self.connect(server, begin) for _ in range(3)]
        for one in held:
            self.assertTrue(one.recv(65536).startswith(b"HTTP/1.1 200"))
        self.assertEqual(self.rest(self.connect(server)), b"")
        for one in held:
            one.sendall(begin)
            self.assertTrue(one.recv(65536).startswith(b"HTTP/1.1 200"))
        held[0].close()
        deadline, got = time.time() + HANG_S, b""
        while not got and time.time() < deadline:
            got = self.rest(self.connect(server, begin.replace(b"host:", b"connection: close\r\nhost:")))
        self.assertTrue(got.startswith(b"HTTP/1.1 200"))

    def test_two_lengths_are_no_two_requests(self):
        """What follows a body whose length is told in two ways, or wrong, is never answered as a request of its own."""
        server = Server(self)
        inner = b"GET /v1/models HTTP/1.1\r\nhost: localhost\r\n\r\n"
        chunk = b"0\r\n\r\n"
        for fields, body in ((b"content-length: 5\r\ntransfer-encoding: chunked", chunk + inner),
                             (b"transfer-encoding: chunked\r\ncontent-length: 5", chunk + inner),
                             (b"content-length: 5\r\ncontent-length: 6", b"{}   " + inner),
                             (b"content-length: 5, 6", b"{}   " + inner), (b"content-length: +5", b"{}   " + inner),
                             (b"content-length: -1", inner), (b"content-length: 0x5", b"{}   " + inner),
                             (b"content-length : 5", b"{}   " + inner), (b"transfer-encoding: identity, chunked, identity", chunk + inner),
                             (b"transfer-encoding: xchunked", chunk + inner), (b"transfer-encoding: chunked\r\n x: y", b"zz\r\n" + inner),
                             (b"transfer-encoding: chunked", b"-1\r\n" + inner),
                             (b"transfer-encoding: chunked", b"fffffffffffffffff\r\n" + inner),
                             (b"x: a\rcontent-length: 0", inner), (b"x: a\x00b", inner)):
            raw = self.connect(server, b"POST /tokenize HTTP/1.1\r\nhost: localhost\r\n" + fields + b"\r\n\r\n" + body)
            raw.settimeout(1)
            try:
                got = self.rest(raw)
            except TimeoutError:
                got = b""
            raw.close()
            self.assertNotIn(b'"object":"list"', got, fields)
            self.assertLessEqual(got.count(b"HTTP/1.1 "), 1, (fields, got))
        # The same request behind one with a right body is answered.
        body = json.dumps({"model": MODEL, "prompt": "a"}).encode()
        right = b"POST /tokenize HTTP/1.1\r\nhost: localhost\r\ncontent-length: %d\r\n\r\n" % len(body) + body
        got = self.rest(self.connect(server, right + inner.replace(b"host:", b"connection: close\r\nhost:")))
        self.assertEqual(got.count(b"HTTP/1.1 200"), 2, got)
        self.assertIn(b'"object":"list"', got)


class Conversations(WithServer):
    def test_templates_that_do_not_end_are_errors(self):
        """Of each request, whose error names the template; the server continues with others."""
        for template, word in (("{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}", "template"),
                               ("{% set ns = namespace(s='a' * 1000) %}{% for i in range(99) %}{% set ns.s = ns.s ~ ns.s %}{% endfor %}",
                                "template"), ("{{ raise_exception('no such turn') }}", "no such turn")):
            server = self.serve(template)
            error = server.post("/v1/chat/completions", {"model": MODEL, "max_tokens": 2, "messages": [{"role": "user", "content": "a"}]},
                                400)["error"]
            self.assertIn(word, error["message"])
            self.assertEqual(server.complete(max_tokens=2)["choices"][0]["finish_reason"], "length")

    def test_what_is_deep_or_long_is_refused(self):
        server = self.serve(PLAIN, "--max-body", "64K")
        user = {"role": "user", "content": "a"}

        def deep(levels):
            return "[" * levels + "]" * levels

        def talk(**fields):
            return {"model": MODEL, "messages": [user], "max_tokens": 2, **fields}

        tools = [{"type": "function", "function": {"name": f"f{index}"}} for index in range(200)]
        for body, status in (('{"model": "%s", "messages": %s}' % (MODEL, deep(60)), 400), (deep(20000), 400),
                             (talk(messages=[user] * 1000), None), (talk(messages=[{"role": "user", "content": "a" * 50000}]), 400),
                             (talk(tools=tools), 400), (talk(stop=["a" * 100] * 17), 400),
                             (talk(messages=[{**user, "content": "a" * 70000}]), 413),
                             (talk(tools=[{"type": "function", "function": {"name": "f", "parameters": {"properties": {}}}}] * 3), 200),
                             (talk(chat_template_kwargs={"messages": [], "x": "{{ 1/0 }}"}), 200),
                             (talk(response_format={"type": "json_schema", "json_schema": {"name": "x", "schema": {
                                 "type": "array", "items": {"type": "string", "pattern": "(a|b){1,9999}(c|d){1,9999}"}}}}), None)):
            got, _, read = server.call("POST", "/v1/chat/completions", body)
            self.assertIn(got, (200, 400) if status is None else (status,), (str(body)[:100], read[:300]))
        self.assertEqual(server.call("GET", "/health")[0], 200)


if __name__ == "__main__":
    server_test.PLAIT, server_test.FIXTURES = sys.argv[1:3]
    unittest.main(argv=sys.argv[:1] + sys.argv[3:])
