#!/usr/bin/env python3
"""Log-probabilities of a prompt's tokens over every way to them: plait generate, /v1/completions with echo, vLLM's prompt_logprobs.

usage: logprobs_test.py PLAIT FIXTURES

They are compared with those that the same tokens have when they are generated: a prompt and its greedy continuation, echoed as one
prompt, have the numbers that the continuation had.
"""
import json
import os
import subprocess
import sys
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import server_test  # noqa: E402
from server_test import MODEL, PROMPT, Server, fixture, frames  # noqa: E402


class PromptLogprobs(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Server(cls)
        cls.ids = cls.server.post("/tokenize", {"model": MODEL, "prompt": PROMPT})["tokens"]
        cls.words = [cls.server.post("/detokenize", {"model": MODEL, "tokens": [one]})["prompt"] for one in cls.ids]

    @classmethod
    def addCleanup(cls, *arguments):
        cls.addClassCleanup(*arguments)

    def assert_close(self, got, expected):
        self.assertEqual(len(got), len(expected))
        for one, other in zip(got, expected):
            self.assertAlmostEqual(one, other, delta=1e-4)

    def test_an_echo_has_what_its_tokens_had(self):
        alone = self.server.complete(max_tokens=12, logprobs=3)["choices"][0]
        generated = alone["logprobs"]
        tokens = json.loads(subprocess.run([server_test.PLAIT, "generate", fixture(MODEL), "-p", PROMPT, "-n", "12", "--temperature", "0",
                                            "--json", "--cache-dir", ""], capture_output=True, check=True).stdout)["ids"]
        echoed = self.server.complete(prompt=self.ids + tokens, max_tokens=0, logprobs=3, echo=True)["choices"][0]
        logprobs = echoed["logprobs"]
        self.assertEqual(logprobs["tokens"], self.words + generated["tokens"])
        self.assertEqual((logprobs["token_logprobs"][0], logprobs["top_logprobs"][0]), (None, None))
        self.assert_close(logprobs["token_logprobs"][len(self.ids):], generated["token_logprobs"])
        for one, other in zip(logprobs["top_logprobs"][len(self.ids):], generated["top_logprobs"]):
            self.assertEqual(one.keys(), other.keys())
            self.assert_close(list(one.values()), list(other.values()))
        self.assertEqual(echoed["text"], PROMPT + alone["text"])
        self.assertEqual(echoed["finish_reason"], "length")
        for token, offset, then in zip(self.words[1:], logprobs["text_offset"][1:], logprobs["text_offset"][2:]):
            self.assertEqual(echoed["text"][offset:then].strip(), token.strip())
        longer = self.server.complete(prompt="ä ö ß " + PROMPT, max_tokens=2, logprobs=0, echo=True)["choices"][0]
        self.assertEqual(longer["logprobs"]["text_offset"][-2], len("ä ö ß " + PROMPT))

    def test_each_way_has_the_same(self):
        ask = {"max_tokens": 5, "logprobs": 2, "echo": True, "n": 2, "prompt": [PROMPT, "a boat"]}
        whole = self.server.complete(**ask)["choices"]
        self.assertEqual(whole[0]["logprobs"], whole[1]["logprobs"])
        self.assertNotEqual(whole[0]["logprobs"], whole[2]["logprobs"])
        self.assertEqual(len(whole[0]["logprobs"]["tokens"]), len(self.ids) + 5)
        parts = frames(self.server.call("POST", "/v1/completions", {"model": MODEL, "temperature": 0, "stream": True, **ask})[2])
        for choice in whole:
            own = [part["choices"][0] for part in parts if part["choices"] and part["choices"][0]["index"] == choice["index"]]
            self.assertEqual("".join(one["text"] for one in own), choice["text"])
            for name, values in choice["logprobs"].items():
                self.assertEqual([value for one in own if one["logprobs"] for value in one["logprobs"][name]], values, name)
        vllm = self.server.complete(max_tokens=2, prompt_logprobs=2)["choices"][0]
        self.assertIsNone(vllm["prompt_logprobs"][0])
        self.assert_close([one[str(token)]["logprob"] for one, token in zip(vllm["prompt_logprobs"][1:], self.ids[1:])],
                          whole[0]["logprobs"]["token_logprobs"][1:len(self.ids)])
        every = self.server.complete(max_tokens=1, prompt_logprobs=20)["choices"][0]["prompt_logprobs"]
        for row, token in zip(every[1:], self.ids[1:]):
            by_rank = sorted(row.values(), key=lambda one: one["rank"])
            self.assertEqual([one["rank"] for one in by_rank[:20]], list(range(1, 21)))
            self.assertEqual(len(row), 20 if row[str(token)]["rank"] <= 20 else 21)
            self.assertEqual([one["logprob"] for one in by_rank], sorted((one["logprob"] for one in by_rank), reverse=True))
        self.assertEqual(len(self.server.complete(max_tokens=2, prompt_logprobs=0)["choices"][0]["prompt_logprobs"][3]), 1)
        for mesh in ([], ["--mesh", "tensor=2"]):
            done = subprocess.run([server_test.PLAIT, "generate", fixture(MODEL), "-p", PROMPT, "-n", "2", "--temperature", "0", "--json",
                                   "--prompt-logprobs", "2", "--cache-dir", "", *mesh], capture_output=True, check=True)
            rows = json.loads(done.stdout)["prompt_logprobs"]
            self.assertEqual([row["id"] for row in rows], self.ids)
            self.assert_close([row["logprob"] for row in rows][1:], whole[0]["logprobs"]["token_logprobs"][1:len(self.ids)])

    def test_chat_has_those_of_its_prompt(self):
        """As /v1/completions has them of the prompt that the chat template writes."""
        talk = {"model": MODEL, "messages": [{"role": "user", "content": PROMPT}]}
        ids = self.server.post("/tokenize", talk)["tokens"]
        whole = self.server.complete(prompt=ids, max_tokens=1, prompt_logprobs=2)["choices"][0]["prompt_logprobs"]
        ask = {**talk, "temperature": 0, "max_tokens": 3, "prompt_logprobs": 2}
        for fields in ({}, {"n": 2}, {"logprobs": True, "top_logprobs": 1}):
            chat = self.server.post("/v1/chat/completions", {**ask, **fields})
            self.assertEqual(chat["usage"]["prompt_tokens"], len(ids))
            self.assertEqual(chat["prompt_logprobs"], whole)
            self.assertEqual(len(chat["choices"]), fields.get("n", 1))
        self.assertEqual([len(one) for one in whole[1:] if one], [len(one) for one in whole[1:]])
        self.assertNotIn("prompt_logprobs", self.server.post("/v1/chat/completions", {**talk, "max_tokens": 1}))
        for fields in ({"stream": True}, {"prompt_logprobs": 21}, {"prompt_logprobs": -1}, {"prompt_logprobs": "all"}):
            error = self.server.post("/v1/chat/completions", {**ask, **fields}, status=400)["error"]
            self.assertEqual(error["param"], "prompt_logprobs")

    def test_bytes_of_part_of_a_character(self):
        """The bytes of an answer's tokens, joined, are the answer, also where a token is part of a character."""
        for text in ("\u4e16\u754c \u00e4\U0001f600", "the sea"):
            answer = self.server.post("/v1/chat/completions", {
                "model": MODEL, "messages": [{"role": "user", "content": PROMPT}], "logprobs": True, "top_logprobs": 2,
                "structured_outputs": {"choice": [text]}, "max_tokens": 60})["choices"][0]
            self.assertEqual(answer["message"]["content"], text)
            own = [bytes(one["bytes"]) for one in answer["logprobs"]["content"]]
            self.assertIn(b"".join(own), (text.encode(), text.encode() + own[-1]))
            whole = [part.decode(errors="replace") for part in own]
            self.assertEqual(whole, [one["token"] for one in answer["logprobs"]["content"]])
            self.assertEqual("\ufffd" in "".join(whole), not text.isascii())
            for one in answer["logprobs"]["content"]:
                for top in one["top_logprobs"]:
                    self.assertEqual(bytes(top["bytes"]).decode(errors="replace"), top["token"])

    def test_what_is_cached_changes_nothing(self):
        ask = {"prompt": PROMPT * 8, "max_tokens": 3, "logprobs": 1}
        self.server.complete(**ask)
        first, second = (self.server.complete(**ask, echo=True) for _ in range(2))
        self.assertEqual(first["choices"], second["choices"])
        self.assertEqual(first["usage"]["prompt_tokens_details"]["cached_tokens"], 0)
        self.assertGreater(self.server.complete(**ask)["usage"]["prompt_tokens_details"]["cached_tokens"], 0)

    def test_wrong_calls(self):
        for fields, param in (({"prompt_logprobs": 21}, "prompt_logprobs"), ({"prompt_logprobs": "a"}, "prompt_logprobs"),
                              ({"prompt_logprobs": 1, "stream": True}, "prompt_logprobs"), ({"logprobs": 21, "echo": True}, "logprobs")):
            error = self.server.post("/v1/completions", {"model": MODEL, "prompt": "a", **fields}, status=400)["error"]
            self.assertEqual(error["param"], param)


if __name__ == "__main__":
    server_test.PLAIT, server_test.FIXTURES = sys.argv[1:3]
    unittest.main(argv=sys.argv[:1] + sys.argv[3:])
