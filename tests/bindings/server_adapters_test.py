#!/usr/bin/env python3
"""Adapters over HTTP: loaded and unloaded at run time, and in one step with each other, the model itself and patterns.

usage: server_adapters_test.py PLAIT FIXTURES
"""
import concurrent.futures
import json
import os
import shutil
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import server_test  # noqa: E402
from server_test import MODEL, PROMPT, Server, fixture  # noqa: E402


def train_adapter(folder, name, text, rate):
    """An adapter of one text, in a folder of its own below `folder`/given."""
    data, run = os.path.join(folder, name + ".jsonl"), os.path.join(folder, name)
    with open(data, "w", encoding="utf-8") as file:
        file.write(json.dumps({"text": text * 3}) + "\n")
    subprocess.run([server_test.PLAIT, "train", fixture(MODEL), "--data", data, "--lora", "4", "--lr", str(rate), "--steps", "8", "--seq",
                    "32", "--cut-long", "--out", run, "--cache-dir", ""], check=True, capture_output=True)
    shutil.copytree(os.path.join(run, "adapter"), os.path.join(folder, "given", name))


class Adapters(unittest.TestCase):
    def server(self, folder):
        return Server(self, "--adapter-dir", os.path.join(folder, "given"), "--option", "adapter_slots=2", "--option", "adapter_rank=4")

    def test_adapters_come_and_go(self):
        with tempfile.TemporaryDirectory() as folder:
            train_adapter(folder, "boats", "the boat and the hill ", 0.05)
            server = self.server(folder)
            plain = server.complete(max_tokens=12)["choices"][0]["text"]
            server.post("/v1/load_lora_adapter", {"lora_name": "boats", "lora_path": "boats"})
            models = json.loads(server.call("GET", "/v1/models")[2])["data"]
            self.assertEqual([(one["id"], one["parent"]) for one in models], [(MODEL, None), ("boats", MODEL)])
            self.assertNotEqual(server.complete(model="boats", max_tokens=12)["choices"][0]["text"], plain)
            self.assertEqual(server.complete(max_tokens=12)["choices"][0]["text"], plain)
            server.post("/v1/load_lora_adapter", {"lora_name": "boats", "lora_path": "boats"}, status=400)
            server.post("/v1/unload_lora_adapter", {"lora_name": "boats"})
            server.post("/v1/completions", {"model": "boats", "prompt": "a"}, status=404)

    def test_adapters_answer_by_a_pattern(self):
        """An adapter, a pattern and company in one step: the same answers as one by one, of the adapter and by the pattern."""
        with tempfile.TemporaryDirectory() as folder:
            train_adapter(folder, "boats", "the boat and the hill ", 0.1)
            train_adapter(folder, "sea", "sea 7 of 9, sea 3 of 4, ", 0.1)
            server = self.server(folder)
            for name in ("boats", "sea"):
                server.post("/v1/load_lora_adapter", {"lora_name": name, "lora_path": name})
            pattern = "(sea|boat|hill)( (sea|boat|hill|[3479])){3,7}"

            def ask(model, form):
                return server.post("/v1/chat/completions", {
                    "model": model, "messages": [{"role": "user", "content": PROMPT}], "temperature": 0, "max_tokens": 80,
                    "logprobs": True, **form})["choices"][0]
            forms = [{}, {"structured_outputs": {"regex": pattern}}]
            asks = [(model, form) for model in (MODEL, "boats", "sea") for form in forms]
            one_by_one = [ask(*one) for one in asks]
            with concurrent.futures.ThreadPoolExecutor(len(asks)) as pool:
                together = list(pool.map(lambda one: ask(*one), asks))
            for alone, accompanied in zip(one_by_one, together):
                self.assertEqual(alone, accompanied)
            answers = [answer["message"]["content"] for answer in one_by_one]
            self.assertEqual(len(set(answers)), len(answers), answers)
            for answer in one_by_one[1::2]:
                self.assertEqual(answer["finish_reason"], "stop")
                self.assertRegex(answer["message"]["content"], f"^{pattern}$")


if __name__ == "__main__":
    server_test.PLAIT, server_test.FIXTURES = sys.argv[1:3]
    unittest.main(argv=sys.argv[:1] + sys.argv[3:])
