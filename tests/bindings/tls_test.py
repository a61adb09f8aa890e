#!/usr/bin/env python3
"""plait serve with TLS and HTTP/2: certificates, what clients of either protocol get, and what a hostile client of HTTP/2 can do.

usage: tls_test.py PLAIT FIXTURES

The clients are httpx, OpenAI's, and the package h2, which frames what no client would send. Certificates are made by trustme. Without
these packages (bindings/python/get_python.sh fetches them) it prints NOT RUN.
"""
import datetime
import json
import os
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import server_test  # noqa: E402
from limits import HANG_S, machine_load  # noqa: E402
from server_test import MODEL, PROMPT, Server  # noqa: E402

ASK = {"model": MODEL, "prompt": PROMPT, "temperature": 0, "max_tokens": 12}
LONG = {**ASK, "max_tokens": 480, "ignore_eos": True, "stream": True}


class WithFiles(unittest.TestCase):
    """Certificates of an authority that only these tests trust."""

    @classmethod
    def setUpClass(cls):
        import trustme
        cls.folder = tempfile.mkdtemp()
        cls.addClassCleanup(shutil.rmtree, cls.folder)
        cls.authority = trustme.CA()
        cls.trust = ssl.create_default_context(cadata=cls.authority.cert_pem.bytes().decode())
        cls.certificate, cls.key = cls.write("own", cls.authority.issue_cert("127.0.0.1", "localhost"))
        _, cls.other_key = cls.write("other", cls.authority.issue_cert("localhost"))
        past = datetime.datetime(2020, 2, 29, 12, 30, 5, tzinfo=datetime.timezone.utc)
        cls.expired, cls.expired_key = cls.write("expired", cls.authority.issue_cert("127.0.0.1", not_before=past.replace(year=2016),
                                                                                     not_after=past))
        cls.past = past.timestamp()

    @classmethod
    def write(cls, name, made):
        paths = [os.path.join(cls.folder, f"{name}.{kind}.pem") for kind in ("certificate", "key")]
        for path, blobs in zip(paths, (made.cert_chain_pems, [made.private_key_pem])):
            with open(path, "wb") as file:
                file.write(b"".join(blob.bytes() for blob in blobs))
        return paths

    def serve(self, *words, certificate=None, key=None):
        return Server(self, "--tls-certificate", certificate or self.certificate, "--tls-key", key or self.key, *words)

    def client(self, http2, trust=None):
        import httpx
        client = httpx.Client(http2=http2, http1=not http2, verify=trust or self.trust, timeout=HANG_S)
        self.addCleanup(client.close)
        return client


class Tls(WithFiles):
    def test_each_protocol_gets_the_same(self):
        """HTTP/1.1 and HTTP/2, plain and with TLS: the same text, whole and streamed."""
        secure, plain = self.serve(), Server(self)
        self.assertTrue(secure.address.startswith("https://127.0.0.1:"))
        texts = set()
        for server in (secure, plain):
            for http2 in (False, True):
                client = self.client(http2)
                answer = client.post(server.address + "/v1/completions", json=ASK)
                self.assertEqual((answer.status_code, answer.http_version), (200, "HTTP/2" if http2 else "HTTP/1.1"))
                self.assertEqual(int(answer.headers["content-length"]), len(answer.content))
                texts.add(answer.json()["choices"][0]["text"])
                streamed = client.post(server.address + "/v1/completions", json={**ASK, "stream": True})
                texts.add("".join(part["choices"][0]["text"] for part in server_test.frames(streamed.content)))
        self.assertEqual(len(texts), 1)

    def test_openais_client(self):
        import openai
        server = self.serve()
        with openai.OpenAI(base_url=server.address + "/v1", api_key="none", http_client=self.client(True)) as client:
            parts = list(client.completions.create(**{**ASK, "max_tokens": 200}, stream=True, extra_body={"ignore_eos": True}))
            self.assertEqual(parts[-1].choices[0].finish_reason, "length")
            with self.assertRaises(openai.NotFoundError):
                client.completions.create(model="other", prompt="a")

    def test_old_protocols_and_plain_text_are_refused(self):
        server = self.serve("--idle-ms", "500")
        old = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        old.minimum_version = old.maximum_version = ssl.TLSVersion.TLSv1_1
        with socket.create_connection(("127.0.0.1", server.port)) as raw, self.assertRaises((ssl.SSLError, OSError)):
            old.wrap_socket(raw, server_hostname="localhost")
        for first in (b"GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n", b"\x16\x03\x01", b""):
            with socket.create_connection(("127.0.0.1", server.port), timeout=HANG_S) as raw:
                raw.sendall(first)
                while raw.recv(1000):  # an alert
                    pass
        deadline = time.time() + HANG_S
        client = self.client(True)
        while client.get(server.address + "/metrics").text.count("plait_open_connections 1\n") != 1:
            self.assertLess(time.time(), deadline)

    def test_what_is_wrong_with_the_files(self):
        def pem(name, text):
            path = os.path.join(self.folder, name)
            with open(path, "w") as file:
                file.write(text)
            return path

        damaged = "-----BEGIN CERTIFICATE-----\nMAAw\n-----END CERTIFICATE-----\n"
        locked = "-----BEGIN ENCRYPTED PRIVATE KEY-----\nMAAw\n-----END ENCRYPTED PRIVATE KEY-----\n"
        for certificate, key, named, message in (
                ("/no/such.pem", self.key, "/no/such.pem", "No such file"),
                (self.certificate, "/no/such.pem", "/no/such.pem", "No such file"),
                (self.key, self.key, self.key, "there is no certificate"),
                (self.certificate, self.certificate, self.certificate, "there is no private key"),
                (self.certificate, pem("locked.pem", locked), "locked.pem", "there is no private key"),
                (self.certificate, self.other_key, self.other_key, "is not that of the certificate in " + self.certificate),
                (pem("damaged.pem", damaged), self.key, "damaged.pem", "the first certificate is damaged"),
                (pem("cut.pem", damaged[:40]), self.key, "cut.pem", ""),
                (pem("large.pem", "a" * (2 << 20)), self.key, "large.pem", "too large"),
                (self.certificate, None, "--tls-key", "is missing"), (None, self.key, "--tls-certificate", "is missing")):
            given = ["--tls-certificate", certificate] if certificate else []
            given += ["--tls-key", key] if key else []
            words = [server_test.PLAIT, "serve", server_test.fixture(MODEL), "--address", "127.0.0.1:0", *given]
            done = subprocess.run(words, capture_output=True, text=True, timeout=HANG_S)
            self.assertEqual(done.returncode, 1, (given, done.stderr))
            self.assertIn(named, done.stderr)
            self.assertIn(message, done.stderr)

    def test_an_expired_certificate_is_a_warning(self):
        server = self.serve(certificate=self.expired, key=self.expired_key)
        server.logged(r"warning: the certificate expired at 2020-02-29 12:30:05 UTC")
        with self.assertRaisesRegex(Exception, "expired"):
            self.client(False).get(server.address + "/health")
        blind = ssl.create_default_context()
        blind.check_hostname, blind.verify_mode = False, ssl.CERT_NONE
        metrics = self.client(False, blind).get(server.address + "/metrics").text
        self.assertIn(f"\nplait_certificate_expires_seconds {self.past:.0f}", metrics.replace("e+09", ""))

    def test_files_that_were_replaced_are_read_again(self):
        """A key that does not fit yet changes nothing."""
        certificate, key = (shutil.copy(path, path + ".used") for path in (self.certificate, self.key))
        server = self.serve(certificate=certificate, key=key)

        def serial():
            with socket.create_connection(("127.0.0.1", server.port)) as raw, \
                    self.trust.wrap_socket(raw, server_hostname="localhost") as secure:
                return secure.getpeercert()["serialNumber"]

        first = serial()
        new = self.write("new", self.authority.issue_cert("127.0.0.1", "localhost"))
        os.replace(shutil.copy(new[0], new[0] + ".copy"), certificate)
        time.sleep(3)
        self.assertEqual(serial(), first)
        os.replace(shutil.copy(new[1], new[1] + ".copy"), key)
        deadline = time.time() + HANG_S
        while serial() == first:
            self.assertLess(time.time(), deadline)
            time.sleep(0.1)


class Leaving(WithFiles):
    def test_clients_that_leave_at_any_time_end_nothing_else(self):
        """Each closes its socket while the server writes to it: over TCP, a socket of Unix, and TLS."""
        path = os.path.join(self.folder, "plait.sock")
        data = json.dumps({**LONG, "n": 8}).encode()
        head = b"POST /v1/completions HTTP/1.1\r\nhost: localhost\r\ncontent-length: %d\r\n\r\n" % len(data)
        for words in ((), ("--address", f"unix:{path}"), ("--tls-certificate", self.certificate, "--tls-key", self.key)):
            server = Server(self, *words)
            for _ in range(25):
                if server.port:
                    raw = socket.create_connection(("127.0.0.1", server.port), timeout=HANG_S)
                else:
                    raw = socket.socket(socket.AF_UNIX)
                    raw.connect(path)
                if server.address.startswith("https"):
                    raw = self.trust.wrap_socket(raw, server_hostname="localhost")
                raw.sendall(head + data)
                self.assertTrue(raw.recv(2000))
                raw.close()
            time.sleep(0.2)
            self.assertIsNone(server.process.poll(), words)


class Raw:
    """A connection of HTTP/2 by frames."""

    def __init__(self, case, server, window=None):
        import h2.config
        import h2.connection
        import h2.events
        import h2.settings
        self.events = h2.events
        self.rest, self.announced = b"", []
        self.socket = socket.create_connection(("127.0.0.1", server.port), timeout=HANG_S)
        case.addCleanup(self.socket.close)
        self.h2 = h2.connection.H2Connection(h2.config.H2Configuration(validate_outbound_headers=False))
        self.h2.local_settings = h2.settings.Settings(client=True, initial_values={
            h2.settings.SettingCodes.INITIAL_WINDOW_SIZE: 65535 if window is None else window, h2.settings.SettingCodes.ENABLE_PUSH: 0})
        self.h2.initiate_connection()
        self.stream = -1
        self.flush()

    def flush(self):
        self.socket.sendall(self.h2.data_to_send())

    def ask(self, path="/v1/completions", body=None, authority="localhost", fields=(), end=True, flush=True):
        """The number of its stream."""
        self.stream += 2
        head = [(":method", "GET" if body is None else "POST"), (":path", path), (":scheme", "http"), (":authority", authority)]
        self.h2.send_headers(self.stream, [*head, *fields], end_stream=body is None)
        if body:
            self.h2.send_data(self.stream, json.dumps(body).encode(), end_stream=end)
        if flush:
            self.flush()
        return self.stream

    def frames(self, data):
        """Without GOAWAY, after which the package takes no more, not even the rest of its answers."""
        self.rest += data
        out = b""
        while len(self.rest) >= 9 and len(self.rest) >= 9 + int.from_bytes(self.rest[:3], "big"):
            size = 9 + int.from_bytes(self.rest[:3], "big")
            frame, self.rest = self.rest[:size], self.rest[size:]
            if frame[3] == 7:
                self.announced.append(int.from_bytes(frame[13:17], "big"))
            else:
                out += frame
        return out

    def read(self):
        """Events that have come; None at the connection's end."""
        try:
            data = self.socket.recv(65536)
        except ConnectionError:
            return None
        if not data:
            return None
        found = self.h2.receive_data(self.frames(data))
        for event in found:
            if isinstance(event, self.events.DataReceived) and event.flow_controlled_length:
                self.h2.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
        try:
            self.flush()
        except ConnectionError:
            return None
        return found

    def answers(self, streams):
        """By stream: status and body."""
        statuses, bodies, left = {}, {one: b"" for one in streams}, set(streams)
        while left:
            found = self.read()
            assert found is not None, ("the connection ended", left)
            for event in found:
                if isinstance(event, self.events.ResponseReceived):
                    statuses[event.stream_id] = int(dict(event.headers)[b":status"])
                elif isinstance(event, self.events.DataReceived):
                    bodies[event.stream_id] += event.data
                elif isinstance(event, (self.events.StreamEnded, self.events.StreamReset)):
                    left.discard(event.stream_id)
        return {one: (statuses.get(one), bodies[one]) for one in streams}

    def end(self):
        """Waits for the connection's end. Returns the reasons that were given before (GOAWAY)."""
        while self.read() is not None:
            pass
        return self.announced


class Http2(unittest.TestCase):
    """Frame by frame."""

    def test_many_streams_on_one_connection(self):
        server = Server(self)
        raw = Raw(self, server)
        bodies = [{**ASK, "prompt": f"{PROMPT} {i}"} for i in range(100)]
        alone = [server.post("/v1/completions", body)["choices"][0]["text"] for body in bodies[::20]]
        streams = [raw.ask(body=body) for body in bodies]
        answers = raw.answers(streams)
        self.assertEqual([json.loads(answers[one][1])["choices"][0]["text"] for one in streams[::20]], alone)
        self.assertEqual({status for status, _ in answers.values()}, {200})
        self.assertEqual(raw.h2.remote_settings.max_concurrent_streams, 128)

    def test_bodies_have_a_limit(self):
        raw = Raw(self, Server(self))
        told = raw.ask(body=ASK, fields=[("content-length", str(9 << 20))], end=False)
        self.assertEqual(raw.answers([told])[told][0], 413)
        self.assertEqual(raw.answers([raw.ask("/health")]).popitem()[1][0], 200)

    def test_names_of_this_machine_only(self):
        raw = Raw(self, Server(self))
        for authority, fields, status in (("localhost", (), 200), ("evil.example", (), 403),
                                           ("evil.example", [("host", "localhost")], 403)):
            stream = raw.ask("/health", authority=authority, fields=fields)
            self.assertIn(raw.answers([stream])[stream][0], (status, 400 if fields else status))

    def test_a_reset_cancels(self):
        server = Server(self)
        raw = Raw(self, server)
        kept, left = raw.ask(body=LONG), raw.ask(body={**LONG, "n": 8})
        server.wait_for("plait_requests_running", 9)
        raw.h2.reset_stream(left)
        raw.flush()
        server.wait_for("plait_requests_running", 1)
        self.assertIn(b'"finish_reason":"length"', raw.answers([kept])[kept][1])
        server.wait_for("plait_cache_pages_free", server.metric("plait_cache_pages"))

    def test_rapid_resets(self):
        """CVE-2023-44487: calls that are cancelled at once hold nothing, and others are answered meanwhile."""
        server = Server(self, "--calls", "64")

        def memory():
            with open(f"/proc/{server.process.pid}/statm") as file:
                return int(file.read().split()[1]) * 4096

        def flood(calls, together):
            """Reasons for which the connection was ended, if it was."""
            raw = Raw(self, server)
            try:
                for _ in range(calls // together):
                    for _ in range(together):
                        stream = raw.ask(body=ASK, flush=together == 1)
                        raw.h2.reset_stream(stream)
                    raw.flush()
                raw.socket.close()
            except ConnectionError:
                return raw.end()
            return []

        flood(500, 1)
        before = memory()
        for _ in range(5):
            flood(500, 1)
            self.assertIn(flood(5000, 100), ([], [11]))  # ENHANCE_YOUR_CALM
            self.assertEqual(server.complete(max_tokens=2)["choices"][0]["finish_reason"], "length")
        server.wait_for("plait_requests_running", 0)
        server.wait_for("plait_open_calls", 1)  # that of /metrics
        self.assertLess(memory() - before, 16 << 20)

    def test_heads_have_a_limit(self):
        server = Server(self)
        raw = Raw(self, server)
        stream = raw.ask("/health", fields=[("x", "a" * 100000)])
        try:
            self.assertEqual(raw.answers([stream])[stream][0], 431)
        except AssertionError:  # or the connection has ended
            pass
        # Fields that never end: CONTINUATION without END_HEADERS.
        flood = Raw(self, server)
        frame = (16384).to_bytes(3, "big") + b"%c\x00" + (1).to_bytes(4, "big") + b"\x00\x01a\x01b" * 3276 + b"\x00" * 4
        with self.assertRaises(OSError):
            flood.socket.sendall(frame.replace(b"%c", b"\x01", 1))
            while True:
                flood.socket.sendall(frame.replace(b"%c", b"\x09", 1))
                flood.socket.settimeout(0.001)
                try:
                    if flood.socket.recv(65536) == b"":
                        raise ConnectionError
                except TimeoutError:
                    pass
                flood.socket.settimeout(HANG_S)
        self.assertEqual(server.call("GET", "/health")[0], 200)

    def test_who_takes_nothing_is_ended(self):
        """The socket is read, but no stream has a window: the calls end with the connection."""
        server = Server(self, "--write-ms", "1000")
        raw = Raw(self, server, window=0)
        raw.ask(body=LONG)
        raw.ask(body={**ASK, "max_tokens": 2})
        server.wait_for("plait_request_cancelled_total", 0)
        began = time.time()
        raw.end()
        self.assertTrue(0.5 < time.time() - began < 10 * machine_load())
        server.wait_for("plait_requests_running", 0)
        server.wait_for("plait_cache_pages_free", server.metric("plait_cache_pages"))

    def test_who_asks_nothing_is_ended(self):
        server = Server(self, "--idle-ms", "500", "--write-ms", "1000")
        raw = Raw(self, server)
        stream = raw.ask("/health")
        self.assertEqual(raw.answers([stream])[stream][0], 200)
        self.assertEqual(raw.end()[:1], [0])
        with socket.create_connection(("127.0.0.1", server.port), timeout=HANG_S) as silent:
            self.assertEqual(silent.recv(1), b"")

    def test_sigterm_drains(self):
        server = Server(self)
        raw = Raw(self, server)
        stream = raw.ask(body=LONG)
        server.wait_for("plait_requests_running", 1)
        server.process.send_signal(signal.SIGTERM)
        self.assertTrue(raw.answers([stream])[stream][1].endswith(b"data: [DONE]\n\n"))
        self.assertEqual(server.process.wait(30), 0)


if __name__ == "__main__":
    server_test.PLAIT, server_test.FIXTURES = sys.argv[1:3]
    missing = server_test.missing_packages("h2", "httpx", "openai", "trustme")
    if missing:
        print("NOT RUN: there is no package " + ", ".join(missing))
        sys.exit(0)
    unittest.main(argv=sys.argv[:1] + sys.argv[3:])
