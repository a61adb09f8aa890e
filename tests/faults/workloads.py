"""What is run under a fault, and what has to be true afterwards."""
import filecmp
import http.client
import json
import os
import re
import shutil
import socket
import subprocess
import time

import page as faults

# Classes of a command, with how many of their calls the quick test fails; --large fails all.
FILES = {"stat": 40, "open": 30, "dir": 10, "read": 20, "mmap": 20, "thread": 4}


class Workload:
    """`prepare` learns the right result without a fault. `check` runs once under the fault that is armed, and returns what is wrong."""
    lasting = ("alloc", "open", "write")
    name, classes = "", {}

    def __init__(self, given, folder):
        self.given, self.folder = given, os.path.join(folder, self.name)
        os.makedirs(self.folder)
        self.cache = os.path.join(self.folder, "cache")

    def path(self, name):
        return os.path.join(self.folder, name)

    def fixture(self, name):
        return os.path.join(self.given.fixtures, name)

    def call(self, page, *words, limit=faults.HANG_S):
        return faults.run([self.given.plait, *words], page.environment(XDG_CACHE_HOME=self.cache), limit)

    def quietly(self, page, *words):
        """Without faults."""
        page.layout.mode = faults.OFF
        return self.call(page, *words)

    def prepare(self, page):
        pass

    def warm(self, page):
        """One run whose calls are counted."""

    def check(self, page, fault):
        raise NotImplementedError

    def end(self):
        pass


def ending(done):
    """What is wrong with an end of a command whatever it does: a signal, a wait, no reason."""
    if done.hung or done.killed:
        return str(done)
    if done.status != 0 and "error" not in done.err:
        return f"no reason: {done}"
    return None


class Command(Workload):
    """A command that writes nothing: the same text, or an error."""
    words = ()

    def prepare(self, page):
        self.call(page, *self.arguments())  # fills the cache
        self.right = self.text(self.call(page, *self.arguments()))

    def arguments(self):
        return [self.words[0], self.fixture(self.words[1]), *self.words[2:]]

    def text(self, done):
        return re.sub(r"\d+(\.\d+)? ?(ns|us|ms|s|MB|kB|GB|B)\b", "#", done.out)

    def warm(self, page):
        self.call(page, *self.arguments())

    def check(self, page, fault):
        done = self.call(page, *self.arguments())
        if wrong := ending(done):
            return wrong
        if done.status == 0 and self.text(done) != self.right:
            return f"exit 0 with another text: {done.out[:200]!r} {done.err[-200:]}"
        return None


class Inspect(Command):
    name, words = "inspect", ("inspect", "gemma3-standard23")
    classes = {**FILES, "alloc": 120}


class Generate(Command):
    name, words = "generate", ("generate", "gemma3-standard23", "--prompt", "the river", "-n", "4", "--temperature", "0", "--threads", "2")
    classes = {**FILES, "alloc": 60}


class Written(Workload):
    """A command that writes a directory: all of it or nothing, and a second try works."""
    classes = {"open": 30, "write": 30, "close": 20, "stat": 30, "read": 10, "fsync": 10, "rename": 5, "mkdir": 5, "dir": 5, "lock": 3}

    def arguments(self, out):
        raise NotImplementedError

    def prepare(self, page):
        self.out, self.sample = self.path("out"), self.path("right")
        done = self.quietly(page, *self.arguments(self.sample))
        assert done.status == 0, done

    def warm(self, page):
        self.call(page, *self.arguments(self.out))
        shutil.rmtree(self.out)

    def same(self, out):
        names = sorted(os.listdir(out))
        return names == sorted(os.listdir(self.sample)) and \
            not any(filecmp.cmpfiles(out, self.sample, names, shallow=False)[1:])

    def check(self, page, fault):
        done = self.call(page, *self.arguments(self.out))
        wrong = ending(done)
        there = os.path.exists(self.out)
        if not wrong and done.status == 0 and not (there and self.same(self.out)):
            wrong = "exit 0, and another directory"
        if not wrong and done.status != 0 and there and not self.same(self.out):
            wrong = f"an error, and something is left: {os.listdir(self.out)}"
        if not wrong and not there:
            again = self.quietly(page, *self.arguments(self.out))
            if again.status != 0 or not self.same(self.out):
                wrong = f"the second try: {again}"
        if left := [name for name in os.listdir(self.folder) if ".tmp" in name]:
            wrong = wrong or (None if fault.kind in ("dir", "unlink", "stat") else f"left behind: {left}")
        for name in [self.out] + [self.path(one) for one in left]:
            shutil.rmtree(name, ignore_errors=True)
        return wrong


class Convert(Written):
    name = "convert"

    def arguments(self, out):
        return ["convert", self.fixture("huggingface/llama"), "--out", out]


class Export(Written):
    name = "export"

    def arguments(self, out):
        return ["export", self.fixture("gemma3-standard23"), "--out", out]


class Quantize(Written):
    name = "quantize"

    def arguments(self, out):
        return ["quantize", self.fixture("gemma3-standard23"), "--out", out]


class Train(Workload):
    """A run that fails continues with --resume, which prints where, and has the bits of one that did not."""
    name = "train"
    classes = {"dir": 8, "stat": 12, "open": 12, "write": 12, "fsync": 4, "rename": 4, "mkdir": 3, "close": 4, "unlink": 3, "link": 2,
               "thread": 3}

    def prepare(self, page):
        self.data = self.path("data.jsonl")
        with open(self.data, "w") as file:
            file.writelines(json.dumps({"text": f"the river and the sea {i % 7} goes down {i % 3}"}) + "\n" for i in range(24))
        self.out, self.sample = self.path("run"), self.path("right")
        assert self.quietly(page, *self.arguments(self.sample)).status == 0
        self.half = self.path("half")
        assert self.quietly(page, *self.arguments(self.half, steps=4)).status == 0

    def arguments(self, out, *more, steps=6):
        return ["train", self.fixture("gemma3-standard23"), "--data", self.data, "--out", out, "--lr", "3e-3", "--batch", "4",
                "--threads", "1", "--steps", str(steps), "--save-every", "2", "--option", "schedule=constant", *more]

    def warm(self, page):
        self.call(page, *self.arguments(self.out))
        shutil.rmtree(self.out)

    def weights(self, out):
        place = os.path.join(out, "checkpoints", "step-000006")
        parts = sorted(name for name in os.listdir(place) if name.endswith(".safetensors")) if os.path.isdir(place) else []
        return [open(os.path.join(place, name), "rb").read() for name in parts]

    def resumed(self, page, done):
        """Continues it, and compares."""
        kept = sorted(os.listdir(os.path.join(self.out, "checkpoints"))) if os.path.isdir(os.path.join(self.out, "checkpoints")) else []
        steps = [int(name[5:]) for name in kept if re.fullmatch(r"step-\d+", name)
                 and os.path.exists(os.path.join(self.out, "checkpoints", name, "manifest.json"))]
        again = self.quietly(page, *self.arguments(self.out, "--resume"))
        if again.status != 0:
            return f"--resume after {done}: {again}"
        if f"at step {max(steps, default=0) + 1}" not in again.err:
            return f"--resume does not begin after step {max(steps, default=0)}: {again.err}"
        return None if self.weights(self.out) == self.weights(self.sample) else "other bits after --resume"

    def check(self, page, fault):
        done = self.call(page, *self.arguments(self.out))
        wrong = ending(done) or self.resumed(page, done)
        shutil.rmtree(self.out, ignore_errors=True)
        return wrong


class Resume(Train):
    name = "resume"

    def fresh(self):
        shutil.rmtree(self.out, ignore_errors=True)
        shutil.copytree(self.half, self.out, symlinks=True)

    def warm(self, page):
        self.fresh()
        self.call(page, *self.arguments(self.out, "--resume"))

    def check(self, page, fault):
        mode = page.layout.mode
        self.fresh()
        page.layout.mode = mode
        done = self.call(page, *self.arguments(self.out, "--resume"))
        if wrong := ending(done):
            return wrong
        if done.status == 0 and "at step 5" not in done.err:
            return f"--resume of a run of 4 steps: {done}"
        return self.resumed(page, done)


class Anew(Resume):
    """A new run over one is refused by name, whatever fails, and changes nothing."""
    name = "anew"
    classes = {"dir": 8, "stat": 12, "open": 12}

    def warm(self, page):
        self.fresh()
        self.call(page, *self.arguments(self.out))

    def check(self, page, fault):
        self.fresh()
        done = self.call(page, *self.arguments(self.out))
        if wrong := ending(done):
            return wrong
        if done.status == 0:
            return f"a run was begun over another: {done}"
        for name in os.listdir(os.path.join(self.half, "checkpoints")):
            if not os.path.exists(os.path.join(self.out, "checkpoints", name)):
                return f"{name} is gone: {done}"
        return None


class Host(Workload):
    """A C host that opens a model and generates, twice in one process: the second try, without a fault, works."""
    name = "host"
    classes = {"alloc": 300, "thread": 6, "open": 20, "mmap": 20, "stat": 20, "read": 10}
    threads = "2"

    def prepare(self, page):
        page.layout.mode = faults.OFF
        self.right = self.host(page).out
        assert self.right.startswith("first"), self.right

    def host(self, page):
        return faults.run([self.given.host, self.fixture("gemma3-standard23"), self.threads], page.environment(), 30)

    def warm(self, page):
        self.host(page)

    def check(self, page, fault):
        done = self.host(page)
        if done.hung or done.killed:
            return str(done)
        first, _, second = done.out.partition("\nsecond ")
        right_first, _, right_second = self.right.partition("\nsecond ")
        if second != right_second:
            return f"the second try: {second!r}, the first: {first!r} {done.err[-200:]}"
        if first != right_first and not first.startswith("first: error"):
            return f"the first try: {first!r}"
        return None


class Host4(Host):
    name, threads = "host4", "4"
    classes = {"thread": 12}


class Server(Workload):
    """A server's calls: one call at most fails, with 5xx; the next of each kind works, and then nothing is left."""
    name = "server"
    classes = {"alloc": 100, "thread": 3, "accept": 3, "recv": 5, "send": 3, "epoll": 3, "stat": 5, "open": 5, "write": 5}
    process = None

    def start(self, page):
        page.layout.mode = faults.OFF
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.process = subprocess.Popen(
            [self.given.plait, "serve", self.fixture("gemma3-standard23"), "--port", str(self.port), "--threads", "1"],
            stderr=subprocess.DEVNULL, env=page.environment(XDG_CACHE_HOME=self.cache))
        for _ in range(600):
            try:
                if self.ask("GET", "/ready")[0] == 200:
                    return
            except OSError:
                pass
            time.sleep(0.05)
        raise AssertionError("the server does not start")

    def ask(self, method, path, body=None, limit=8):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=limit)
        try:
            connection.request(method, path, json.dumps(body) if body else None, {"content-type": "application/json"})
            answer = connection.getresponse()
            return answer.status, answer.read().decode(errors="replace")
        finally:
            connection.close()

    @staticmethod
    def complete(**more):
        return "POST", "/v1/completions", {"model": "gemma3-standard23", "temperature": 0, **more}

    CALLS = [complete(prompt=[1, 2, 3], max_tokens=3), complete(prompt=[1, 2, 3], max_tokens=3, stream=True),
             complete(prompt=[3, 2], max_tokens=2, n=4, logprobs=1),
             ("GET", "/metrics", None), ("GET", "/v1/models", None)]

    def prepare(self, page):
        self.start(page)
        for call in self.CALLS:
            self.ask(*call)
        self.right = [self.shape(self.ask(*call)) for call in self.CALLS[:3]]

    def shape(self, answer):
        return answer[0], re.sub(r'"(id|created|system_fingerprint)": ?("[^"]*"|\d+)', "", answer[1])

    def warm(self, page):
        for call in self.CALLS:
            self.ask(*call)

    def metric(self, text, name):
        found = re.search(rf"^{name}(?:{{[^}}]*}})? (\S+)$", text, re.M)
        return float(found[1]) if found else None

    def rest(self):
        """Why the server is not at rest; None: it is."""
        why = None
        for _ in range(40):
            text = self.ask("GET", "/metrics")[1]
            busy = {name: self.metric(text, name) for name in ("plait_requests_running", "plait_requests_waiting")}
            came, opened = self.metric(text, "plait_requests_total"), self.metric(text, "plait_requests_open")
            why = None if not any(busy.values()) and opened == 1 else f"{busy} open {opened} of {came}"
            if not why:
                return None
            time.sleep(0.05)
        return f"not at rest: {why}"

    def check(self, page, fault):
        armed = page.layout.mode
        if self.process.poll() is not None:
            self.start(page)
            page.arm(fault)
        wrong, failed, lost = None, 0, 0
        for number, call in enumerate(self.CALLS):
            try:
                answer = self.ask(*call)
                if answer[0] != 200:
                    failed += 1
                    if answer[0] < 500:
                        wrong = wrong or f"{call[1]} is answered {answer[0]}: {answer[1][:200]}"
                elif number < 3 and self.shape(answer) != self.right[number]:
                    failed += 1
                    if "error" not in answer[1]:
                        wrong = wrong or f"{call[1]}: 200 with another text: {answer[1][:300]}"
            except (OSError, http.client.HTTPException) as error:
                lost += 1
                if "timed out" in str(error):
                    wrong = wrong or f"{call[1]} hangs"
        page.layout.mode = faults.OFF
        if self.process.poll() is not None:
            return f"the server: {faults.Ended(self.process.returncode, '', '')}"
        if not wrong and failed + lost > 1 and armed == faults.ONCE:
            wrong = f"{failed} calls failed, {lost} were lost"
        try:
            for number in (0, 1, 2):
                answer = self.ask(*self.CALLS[number])
                if self.shape(answer) != self.right[number]:
                    wrong = wrong or f"afterwards {self.CALLS[number][1]}: {answer[0]} {answer[1][:300]}"
            wrong = wrong or self.rest()
        except (OSError, http.client.HTTPException) as error:
            wrong = wrong or f"afterwards: {error}"
        if wrong:
            self.stop()
        return wrong

    def stop(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()

    def end(self):
        self.stop()


class ServerStart(Workload):
    """A server that does not start names the reason."""
    name = "server_start"
    classes = {"thread": 8, "socket": 3, "open": 20, "stat": 20, "epoll": 4, "alloc": 20}

    def once(self, page):
        process = subprocess.Popen(
            [self.given.plait, "serve", self.fixture("gemma3-standard23"), "--port", "0", "--threads", "2"],
            stderr=subprocess.PIPE, env=page.environment(XDG_CACHE_HOME=self.cache))
        begin, text = time.time(), b""
        os.set_blocking(process.stderr.fileno(), False)
        while process.poll() is None and b"ready:" not in text and time.time() - begin < 20:
            text += process.stderr.read() or b""
            time.sleep(0.01)
        late = process.poll() is None and b"ready:" not in text
        if process.poll() is None:
            process.terminate()
        process.wait()
        text += process.stderr.read() or b""
        process.stderr.close()
        done = faults.Ended(process.returncode, "", text.decode(errors="replace"))
        done.hung = late
        return done

    def warm(self, page):
        self.once(page)

    def check(self, page, fault):
        done = self.once(page)
        wrong = ending(done)
        if not wrong and fault.kind == "thread" and done.status not in (0, 130) and "thread" not in done.err:
            wrong = f"the thread is not named: {done}"
        return wrong


def all_of(given, folder):
    for one in (Inspect, Generate, Convert, Export, Quantize, Train, Resume, Anew, Host, Host4, Server, ServerStart):
        yield one(given, folder)
