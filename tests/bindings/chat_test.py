"""plait chat: one message, line by line, and in a terminal (a pseudo-terminal, so that editing, history and Ctrl-C are real).

usage: chat_test.py PLAIT FIXTURES
"""
import json
import os
import pty
import re
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

from limits import HANG_S

PLAIT = MODEL = None
CTRL_C, CTRL_D, UP = b"\x03", b"\x04", b"\x1b[A"


class Folder(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.folder)
        self.environment = dict(os.environ, XDG_CACHE_HOME=os.path.join(self.folder, "cache"), TERM="xterm", LC_ALL="C.UTF-8")

    def path(self, name):
        return os.path.join(self.folder, name)


class Chat(Folder):
    def call(self, *words, stdin="", model=None, status=0):
        done = subprocess.run([PLAIT, "chat", model or MODEL, "--seed", "7", "-n", "8", *words], input=stdin.encode(),
                              capture_output=True, env=self.environment, timeout=HANG_S)
        self.assertEqual(done.returncode, status, done.stderr)
        return done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace")

    def lines(self, *lines, words=()):
        return self.call("--lines", *words, stdin="".join(line + "\n" for line in lines))

    def saved(self, *lines, words=()):
        """The messages of a conversation of these lines."""
        self.lines(*lines, "/save " + self.path("saved.jsonl"), words=words)
        with open(self.path("saved.jsonl")) as file:
            return [(message["role"], message["content"]) for message in json.loads(file.read())["messages"]]

    def test_one_message(self):
        asked, said = self.call("--prompt", "Hello")
        self.assertIn("8 tokens", said)
        generated = subprocess.run([PLAIT, "generate", MODEL, "--chat", "--prompt", "Hello", "--seed", "7", "-n", "8"],
                                   capture_output=True, env=self.environment, timeout=HANG_S).stdout.decode(errors="replace")
        self.assertEqual(asked, generated)
        self.assertEqual(self.call(stdin="Hello\n")[0], generated, "stdin that is no terminal is one message")
        for empty in ("", " \n"):
            self.assertIn("the message is empty", self.call(stdin=empty, status=2)[1])
        self.assertEqual(self.call("--prompt", "Hello", "--mesh", "tensor=2")[0], generated)

    def test_each_turn_sees_those_before_and_reuses_their_cache(self):
        first = "Hello, this is a first message of some words, long enough for a page of the cache"
        out, said = self.lines(first, "And a second one", "/again")
        self.assertEqual(len(out.rstrip("\n").split("\n")), 3, out)
        cached = [int(found) for found in re.findall(r"(\d+) of \d+ prompt tokens cached", said)]
        self.assertEqual(cached[0], 0)
        self.assertGreater(cached[1], 0)
        self.assertGreater(cached[2], 0)
        answers = self.saved("Hello", "And you?")
        self.assertEqual([role for role, _ in answers], ["user", "assistant", "user", "assistant"])
        # A conversation that was loaded continues like the one that was saved.
        self.assertEqual(self.saved("/load " + self.path("saved.jsonl"), "More")[:4], answers)

    def test_commands(self):
        self.assertEqual(self.saved("/system Be brief", "Hello", "/reset"), [("system", "Be brief")])
        self.assertEqual(self.saved("Hello", "/system"), self.saved("Hello"))
        self.assertEqual(self.saved("Hello", words=["--system", "Be brief"])[0], ("system", "Be brief"))
        messages = self.saved('"""two', 'lines"""', "one\\", "more", '"""x"""')
        self.assertEqual([content for role, content in messages if role == "user"], ["two\nlines", "one\nmore", "x"])
        _, said = self.lines("/set temperature 0.7", "/set", "/set temperature", "/set", "/help", "/quit", "/nothing")
        for words in ("temperature is 0.7", "seed 7", "temperature has its default", "/adapter", "Ctrl-D"):
            self.assertIn(words, said)
        self.assertNotIn("nothing", said.replace("nothing:", ""), "/quit ends it")

    def test_mistakes_are_told_and_the_chat_continues(self):
        for line, words in (("/sve x", "did you mean /save?"), ("/set temperture 1", "did you mean temperature?"),
                            ("/set temperature hot", "temperature"), ("/load " + self.path("absent"), "cannot read"),
                            ("/save /proc/nothing/x", "cannot write"), ("/adapter " + self.path("absent"), "absent"),
                            ("/again", "no answer yet"), ("word " * 3000, "context")):
            _, said = self.lines(line, "Hello")
            self.assertIn(words, said)
            self.assertEqual(said.count("prompt tokens cached"), 1, said)
        with open(self.path("list.json"), "w") as file:
            file.write('[{"role": "user"}]')
        self.assertIn("is no conversation", self.lines("/load " + self.path("list.json"))[1])
        _, said = self.call("-p", "Hello", "--temperature", "hot", status=2)
        self.assertIn("temperature", said)

    def test_a_base_model_is_not_chatted_with(self):
        base = shutil.copytree(MODEL, self.path("base"))
        with open(os.path.join(base, "tokenizer_config.json")) as file:
            config = json.load(file)
        del config["chat_template"]
        with open(os.path.join(base, "tokenizer_config.json"), "w") as file:
            json.dump(config, file)
        _, said = self.call("-p", "Hello", model=base, status=2)
        self.assertIn("no chat template", said)
        self.assertIn("plait generate", said)

    def test_an_adapter_can_be_put_on_and_taken_off(self):
        with open(self.path("data.jsonl"), "w") as file:
            file.write('{"text": "one two three four"}\n' * 4)
        subprocess.run([PLAIT, "train", MODEL, "--data", self.path("data.jsonl"), "--lora", "2", "--lr", "0.5", "--steps", "2",
                        "--out", self.path("run")], check=True, capture_output=True, env=self.environment, timeout=HANG_S)
        out, _ = self.lines("Hello", "/reset", "/adapter " + self.path("run/adapter"), "Hello", "/reset", "/adapter", "Hello",
                            words=["--temperature", "0"])
        plain, adapted, again = out.rstrip("\n").split("\n")
        self.assertNotEqual(plain, adapted)
        self.assertEqual(plain, again)
        self.assertEqual(self.call("-p", "Hello", "--temperature", "0", "--adapter", self.path("run/adapter"))[0].rstrip("\n"), adapted)


class Terminal(Folder):

    def start(self, *words):
        self.child, self.terminal = pty.fork()
        if self.child == 0:
            os.execve(PLAIT, [PLAIT, "chat", MODEL, "--seed", "7", *words], self.environment)
        self.addCleanup(os.close, self.terminal)
        self.seen = b""
        self.wait_for(b"> ")

    def wait_for(self, text, seconds=HANG_S):
        """Reads until the text comes; what came since the last time."""
        end = time.monotonic() + seconds
        while text not in self.seen:
            ready, _, _ = select.select([self.terminal], [], [], max(0, end - time.monotonic()))
            self.assertTrue(ready, (text, self.seen[-200:]))
            self.seen += os.read(self.terminal, 4096)
        before, _, self.seen = self.seen.partition(text)
        return before

    def type(self, *keys):
        os.write(self.terminal, b"".join(keys))

    def status(self):
        end = time.monotonic() + HANG_S
        try:
            while select.select([self.terminal], [], [], max(0, end - time.monotonic()))[0]:
                os.read(self.terminal, 4096)
            os.kill(self.child, signal.SIGKILL)
        except OSError:
            pass  # the other end is closed
        return os.waitstatus_to_exitcode(os.waitpid(self.child, 0)[1])

    def test_lines_are_edited_and_remembered(self):
        self.start("-n", "8")
        self.type(b"Hellp", b"\x7f", b"o\r")
        self.wait_for(b"prompt tokens cached")
        self.wait_for(b"> ")
        self.type(UP, b"\r")
        self.wait_for(b"Hello")
        self.wait_for(b"prompt tokens cached")
        self.wait_for(b"> ")
        self.type(b"/save " + self.path("saved.jsonl").encode() + b"\r")
        self.wait_for(b"written")
        self.wait_for(b"> ")
        self.type(CTRL_D)
        self.assertEqual(self.status(), 0)
        with open(self.path("saved.jsonl")) as file:
            messages = json.loads(file.read())["messages"]
        self.assertEqual([message["content"] for message in messages if message["role"] == "user"], ["Hello", "Hello"])
        self.start("-n", "8")  # the history outlives the chat
        self.type(UP, UP, b"\r")
        self.wait_for(b"Hello")
        self.wait_for(b"prompt tokens cached")
        self.wait_for(b"> ")
        self.type(CTRL_D)
        self.assertEqual(self.status(), 0)

    def test_what_is_pasted_is_one_message(self):
        self.start("-n", "8")
        self.type(b"one\rtwo\rthree")
        time.sleep(1)
        self.type(b"\r")
        self.wait_for(b"prompt tokens cached")
        self.wait_for(b"> ")
        self.type(b"/save " + self.path("saved.jsonl").encode() + b"\r")
        self.wait_for(b"written")
        with open(self.path("saved.jsonl")) as file:
            self.assertEqual(json.loads(file.read())["messages"][0]["content"], "one\ntwo\nthree")
        self.wait_for(b"> ")
        self.type(CTRL_D)
        self.assertEqual(self.status(), 0)

    def test_ctrl_c_stops_the_answer_and_not_the_chat(self):
        self.start("-n", "100000", "--ignore-eos", "--option", "context=1000000", "--option", "threads=1")
        self.type("é Hello".encode(), CTRL_C)  # at the prompt: the line is abandoned
        self.wait_for(b"Ctrl-D or /quit ends")
        self.wait_for(b"> ")
        self.type(b"Hello\r")
        self.wait_for(b"\n")
        time.sleep(0.5)
        self.type(CTRL_C)
        self.wait_for(b"; stopped")
        self.wait_for(b"> ")
        self.type(b"/quit\r")
        self.assertEqual(self.status(), 0)


if __name__ == "__main__":
    PLAIT = os.path.abspath(sys.argv[1])
    MODEL = os.path.join(sys.argv[2], "gemma3-standard23")
    unittest.main(argv=sys.argv[:1])
