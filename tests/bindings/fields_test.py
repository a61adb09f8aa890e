#!/usr/bin/env python3
"""What plait serve makes of fields, methods, hosts and headers that clients know.

usage: fields_test.py PLAIT FIXTURES
"""
import os
import sys
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import server_test  # noqa: E402
from server_test import MODEL, Server  # noqa: E402


class Fields(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Server(cls, "--cors-origin", "https://page.example")

    @classmethod
    def addCleanup(cls, *arguments):
        cls.addClassCleanup(*arguments)

    def test_fields_are_taken_or_refused(self):
        """Those of vLLM, llama.cpp, transformers and OpenAI that are not taken have their usual value, or are refused by name."""
        chat, text = "/v1/chat/completions", "/v1/completions"
        messages = [{"role": "user", "content": "a"}]
        bodies = {chat: {"model": MODEL, "messages": messages, "max_tokens": 2}, text: {"model": MODEL, "prompt": "a", "max_tokens": 2},
                  "/v1/responses": {"model": MODEL, "input": "a", "max_output_tokens": 2},
                  "/v1/messages": {"model": MODEL, "messages": messages, "max_tokens": 2},
                  "/v1/embeddings": {"model": MODEL, "input": "a"}}
        asked = {"num_beams": (1, 4), "no_repeat_ngram_size": (0, 3), "bad_words_ids": ([], [[5]]), "length_penalty": (1.0, 2.0),
                 "use_beam_search": (False, True), "include_stop_str_in_output": (False, True), "typical_p": (1, 0.5),
                 "allowed_token_ids": (None, [5]), "logits_processors": ([], ["a"]), "truncate_prompt_tokens": (-1, 5),
                 "mirostat": (0, 2), "dry_multiplier": (0, 0.8), "repeat_penalty": (1, 1.3), "grammar": ("", "root ::= x")}
        for path, body in bodies.items():
            for name, (usual, other) in asked.items() if path != "/v1/embeddings" else ():
                self.server.post(path, {**body, name: usual})
                self.assertIn(name, self.server.post(path, {**body, name: other}, 400)["error"]["message"], path)
            self.assertIn("made_up", self.server.post(path, {**body, "made_up": 1}, 400)["error"]["message"], path)
        for name, usual, other in (("add_generation_prompt", True, False), ("continue_final_message", False, True),
                                   ("echo", False, True), ("function_call", "none", "auto"), ("verbosity", "medium", "low"),
                                   ("modalities", ["text"], ["text", "audio"]), ("store", False, None)):
            self.server.post(chat, {**bodies[chat], name: usual})
            if other is not None:
                self.assertEqual(self.server.post(chat, {**bodies[chat], name: other}, 400)["error"]["param"], name)
        # Taken: the first token of the answer as one that ends it.
        whole = self.server.post(text, {**bodies[text], "max_tokens": 8, "temperature": 0, "logprobs": 0, "stop": []})["choices"][0]
        token = self.server.post("/tokenize", {"model": MODEL, "prompt": "a"})["tokens"]
        ended = self.server.post(text, {"model": MODEL, "prompt": token, "max_tokens": 8, "temperature": 0,
                                        "stop_token_ids": list(range(512))})
        self.assertEqual(ended["usage"]["completion_tokens"], 1)
        self.assertEqual(ended["choices"][0]["finish_reason"], "stop")
        self.assertTrue(whole["text"])
        self.assertEqual(self.server.post(text, {**bodies[text], "stop_token_ids": ["a"]}, 400)["error"]["param"], "stop_token_ids[0]")
        # Seeds have 64 bits, with a sign or without.
        for seed in (2 ** 63 - 1, -2 ** 63, 2 ** 64 - 1, 2 ** 41 + 1, 0):
            first, again = [self.server.post(text, {**bodies[text], "max_tokens": 8, "seed": seed, "temperature": 2}) for _ in range(2)]
            self.assertEqual(first["choices"][0]["text"], again["choices"][0]["text"])
        texts = {self.server.post(text, {**bodies[text], "max_tokens": 12, "seed": seed, "temperature": 5})["choices"][0]["text"]
                 for seed in (1, 1 + 2 ** 40, 1 + 2 ** 60, 2 ** 63 + 1)}
        self.assertEqual(len(texts), 4)
        for bias in (1e300, -1e39):
            self.assertEqual(self.server.post(text, {**bodies[text], "logit_bias": {"5": bias}}, 400)["error"]["param"], "logit_bias.5")
        # Tokens of one text are all there.
        tops = self.server.post(text, {**bodies[text], "max_tokens": 16, "temperature": 1, "logprobs": 20})["choices"][0]["logprobs"]
        self.assertEqual({len(one) for one in tops["top_logprobs"]}, {20})

    def test_methods_and_hosts(self):
        self.assertEqual(self.server.call("HEAD", "/v1/completions")[0], 405)
        status, headers, read = self.server.call("HEAD", "/v1/models")
        self.assertEqual((status, read, headers["content-length"]), (200, b"", str(len(self.server.call("GET", "/v1/models")[2]))))
        for host, status in (("LOCALHOST", 200), ("LocalHost:8080", 200), ("localhost.", 200), ("EVIL.example", 403)):
            self.assertEqual(self.server.call("GET", "/health", host=host)[0], status, host)

    def test_headers_of_clients_in_browsers(self):
        # What the clients of OpenAI and Anthropic send from a browser.
        wanted = ("authorization,content-type,x-stainless-arch,x-stainless-lang,x-stainless-os,x-stainless-package-version,"
                  "x-stainless-retry-count,x-stainless-runtime,x-stainless-runtime-version,x-stainless-timeout,anthropic-version,"
                  "anthropic-dangerous-direct-browser-access,x-api-key,openai-organization,openai-project")
        headers = self.server.call("OPTIONS", "/v1/messages", access_control_request_headers=wanted)[1]
        self.assertEqual(headers["access-control-allow-headers"], wanted)
        headers = self.server.call("OPTIONS", "/v1/messages", access_control_request_headers="x y;z\tq")[1]
        self.assertIn("anthropic-version", headers["access-control-allow-headers"])


if __name__ == "__main__":
    server_test.PLAIT, server_test.FIXTURES = sys.argv[1:3]
    unittest.main(argv=sys.argv[:1] + sys.argv[3:])
