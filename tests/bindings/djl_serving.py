"""DJL Serving itself, unchanged, with Plait as one of its engines: the installation that DJL_SERVING_HOME names (what
serving-VERSION.tar unpacks to, or djl-serving.deb installs). Where there is none nothing can be run, and that is said.

usage: djl_serving.py BUILD FIXTURES SCENARIOS
"""
import contextlib
import glob
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

from limits import machine_load

PROPERTIES = ["engine=Plait", "translatorFactory=ai.plait.djl.PlaitTranslatorFactory"]


def installation():
    """What DJL_SERVING_HOME names, or None."""
    home = os.environ.get("DJL_SERVING_HOME")
    return home if home and glob.glob(os.path.join(home, "bin", "*serving")) else None


def jars(build):
    found = glob.glob(os.path.join(os.path.abspath(build), "bindings/java/plait*/plait*.jar"))
    return [path for path in found if not path.endswith(("-sources.jar", "-javadoc.jar"))]


class Server:
    """One that serves models {name: (directory, properties)}, with a home of its own: the installation stays as it is."""

    def __init__(self, build, models, folder):
        home = os.path.join(folder, "home")
        os.makedirs(os.path.join(home, "models"))
        os.makedirs(os.path.join(home, "deps"))
        for path in [*glob.glob(os.path.join(installation(), "deps", "*.jar")), *jars(build)]:
            os.symlink(path, os.path.join(home, "deps", os.path.basename(path)))
        for name, (directory, properties) in models.items():
            own = os.path.join(home, "models", name)
            os.makedirs(own)
            for path in glob.glob(os.path.join(os.path.abspath(directory), "*")):
                os.symlink(path, os.path.join(own, os.path.basename(path)))
            with open(os.path.join(own, "serving.properties"), "w") as file:
                file.write("\n".join(PROPERTIES + properties))
        with contextlib.closing(socket.create_server(("127.0.0.1", 0))) as probe:
            self.address = probe.getsockname()
        where = "http://%s:%d" % self.address
        config = os.path.join(home, "config.properties")
        with open(config, "w") as file:
            file.write(f"inference_address={where}\nmanagement_address={where}\nmodel_store={home}/models\nload_models=ALL\n")
        self.log = os.path.join(folder, "server.log")
        program = glob.glob(os.path.join(installation(), "bin", "*serving"))[0]
        environment = {**os.environ, "MODEL_SERVER_HOME": home, "OPT_OUT_TRACKING": "true",
                       "PLAIT_CACHE_DIR": os.path.join(folder, "cache")}
        with open(self.log, "w") as log:
            self.process = subprocess.Popen([program, "-f", config], env=environment, stdout=log, stderr=log, start_new_session=True)
        until(lambda: self.healthy(len(models)), 120, "the server is up")

    def healthy(self, models):
        if self.process.poll() is not None:
            raise AssertionError(f"the server ended with {self.process.returncode}")
        with contextlib.suppress(OSError, ValueError):
            return self.ask("GET", "/ping")[1].count("Healthy") == models
        return False

    def send(self, method, path, body=None):
        connection = socket.create_connection(self.address)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        data = b"" if body is None else json.dumps(body).encode()
        connection.sendall(f"{method} {path} HTTP/1.1\r\nHost: plait\r\nContent-Type: application/json\r\n"
                           f"Content-Length: {len(data)}\r\n\r\n".encode() + data)
        return connection

    def ask(self, method, path, body=None):
        """Status and body."""
        with contextlib.closing(self.send(method, path, body)) as connection:
            reply = Reply(connection)
            return reply.status, b"".join(reply.pieces()).decode()

    def generate(self, model, body):
        return self.ask("POST", f"/predictions/{model}", body)

    def close(self):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGTERM)
        self.process.wait(60)


class Reply:
    """A reply of HTTP, by pieces as they come."""

    def __init__(self, connection):
        self.file = connection.makefile("rb")
        self.status = int(self.file.readline().split()[1])
        self.headers = {}
        for line in iter(self.file.readline, b"\r\n"):
            name, value = line.decode().split(":", 1)
            self.headers[name.lower()] = value.strip()

    def pieces(self):
        if "content-length" in self.headers:
            yield self.file.read(int(self.headers["content-length"]))
            return
        while True:
            size = int(self.file.readline(), 16)
            piece = self.file.read(size)
            self.file.readline()
            if size == 0:
                return
            yield piece


def until(condition, seconds, what):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"not in {seconds} s: {what}"
        time.sleep(0.02)


def check_replies(server, expected):
    """Tokens are those of the C interface, whole and streamed; chats come in their schema."""
    query = {"inputs": expected["stream.prompt"],
             "parameters": {"max_new_tokens": int(expected["stream.max_tokens"]), "ignore_eos": True, "details": True}}
    ids = [int(text) for text in expected["stream.tokens"].split(",")]
    text = bytes.fromhex(expected["stream.text_hex"]).decode()
    status, said = server.generate("small", query)
    reply = json.loads(said)
    assert status == 200 and reply["generated_text"] == text, said
    assert [token["id"] for token in reply["details"]["tokens"]] == ids, said
    status, said = server.generate("small", {**query, "stream": True})
    lines = [json.loads(line) for line in said.splitlines()]
    assert [line["token"]["id"] for line in lines] == ids and lines[-1]["generated_text"] == text, said
    chat = {"messages": [{"role": "user", "content": "hello"}], "max_tokens": 6, "temperature": 0, "ignore_eos": True}
    status, said = server.ask("POST", "/v1/chat/completions?model_name=small", chat)
    reply = json.loads(said)
    assert status == 200 and reply["usage"]["completion_tokens"] == 6, said
    status, said = server.ask("POST", "/v1/chat/completions?model_name=small", {**chat, "stream": True})
    pieces = [json.loads(line)["choices"][0]["delta"]["content"] for line in said.splitlines()]
    assert "".join(pieces) == reply["choices"][0]["message"]["content"], said
    status, said = server.generate("small", {"parameters": {}})
    assert status == 400 and "inputs" in said, said


def check_many_clients(server, expected, clients=64, tokens=1000):
    """All stream at once: each has its first token before any has its last."""
    body = {"inputs": expected["stream.prompt"], "stream": True, "parameters": {"max_new_tokens": tokens, "ignore_eos": True}}
    first, last, texts = [0.0] * clients, [0.0] * clients, [""] * clients

    def client(number, connection):
        with contextlib.closing(connection):
            for piece in Reply(connection).pieces():
                last[number] = time.monotonic()
                first[number] = first[number] or last[number]
                texts[number] += piece.decode()

    connections = [server.send("POST", "/predictions/small", body) for _ in range(clients)]
    threads = [threading.Thread(target=client, args=pair) for pair in enumerate(connections)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(texts)) == 1 and texts[0].count("\n") == tokens, [text.count("\n") for text in texts]
    assert max(first) < min(last), "some clients had to wait for others to end"


def check_clients_that_leave(server, expected):
    """The model `one` runs one request at a time: its slot comes back long before 100,000 tokens are there."""
    for tokens_seen in (0, 1):
        body = {"inputs": expected["stream.prompt"], "stream": True, "parameters": {"max_new_tokens": 100_000, "ignore_eos": True}}
        with contextlib.closing(server.send("POST", "/predictions/one", body)) as leaving:
            if tokens_seen:
                next(Reply(leaving).pieces())
            leaving.shutdown(socket.SHUT_RDWR)
        begin = time.monotonic()
        status, said = server.generate("one", {"inputs": "x", "parameters": {"max_new_tokens": 2, "ignore_eos": True}})
        assert status == 200, said
        assert time.monotonic() - begin < 20 * machine_load(), "a client that left kept its slot"


def check_unloading(server, expected):
    """Requests that run get an error, and the server lives on."""
    body = {"inputs": expected["stream.prompt"], "stream": True, "parameters": {"max_new_tokens": 100_000, "ignore_eos": True}}
    with contextlib.closing(server.send("POST", "/predictions/one", body)) as connection:
        pieces = Reply(connection).pieces()
        next(pieces)
        status, said = server.ask("DELETE", "/models/one")
        assert status == 200, said
        rest = b"".join(pieces).decode().splitlines()
    last = json.loads(rest[-1])
    assert last["token"]["id"] == -1 and last["details"]["finish_reason"] == "error", rest[-1]
    assert server.generate("small", {"inputs": "x"})[0] == 200


def main():
    build, fixtures, scenarios = sys.argv[1:]
    if not installation():
        print("NOT RUN: DJL_SERVING_HOME names no installation of DJL Serving")
        return 0
    if len(jars(build)) < 2:
        print("NOT RUN: the jars are not packed (bindings.java_test does)")
        return 0
    with open(scenarios) as file:
        expected = dict(line.rstrip("\n").split(" = ", 1) for line in file if " = " in line and not line.startswith("#"))
    model = os.path.join(fixtures, expected["model"])
    small = ["option.plait.threads=1", "option.plait.cache_bytes=128M", "option.plait.context=100000"]
    folder = tempfile.mkdtemp()
    server = None
    try:
        server = Server(build, {"small": (model, [*small, "option.max_rolling_batch_size=64"]),
                                # Of requests one at a time.
                                "one": (model, [*small, "option.max_rolling_batch_size=1"])}, folder)
        for check in (check_replies, check_many_clients, check_clients_that_leave, check_unloading):
            begin = time.monotonic()
            check(server, expected)
            print(f"{check.__name__}: {time.monotonic() - begin:.1f} s")
        server.close()
    except BaseException:
        if server:
            server.close()
        log = os.path.join(folder, "server.log")
        print(open(log).read()[-8000:] if os.path.exists(log) else "")
        raise
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
