#!/usr/bin/env python3
"""Answers by real schemas: those of AWS' resources (get_schemas.sh), at a high temperature by a model of random weights. Every answer
that ends is valid by the package jsonschema; what is refused names a keyword or a reference.

usage: real_schemas_test.py PLAIT FIXTURES
"""
import collections
import concurrent.futures
import glob
import json
import os
import re
import subprocess
import sys
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import server_test  # noqa: E402
from server_test import MODEL, Server  # noqa: E402

FOLDER = os.path.join(server_test.ROOT, ".cache", "schemas")


def without(schema, keyword):
    """The schema without the keyword of a boolean."""
    if isinstance(schema, list):
        return [without(part, keyword) for part in schema]
    if not isinstance(schema, dict):
        return schema
    return {name: without(part, keyword) for name, part in schema.items() if name != keyword or not isinstance(part, bool)}


class RealSchemas(unittest.TestCase):
    def test_every_answer_that_ends_is_valid(self):
        """`uniqueItems`, which no grammar has, is refused; the rest of such a schema is tried without it."""
        server = Server(self)
        text = {"add_special_tokens": False, "model": MODEL}
        ends = {character: server.post("/tokenize", {**text, "prompt": character})["tokens"][-1] for character in "\"}],"}
        # What ends a text, an object and a list is made likely, so that answers end.
        bias = {str(ends[character]): by for character, by in (("\"", 6), ("}", 8), ("]", 8), (",", -2))}

        def ask(path):
            with open(path, encoding="utf-8") as file:
                whole = json.load(file)
            fields = {"model": MODEL, "messages": [{"role": "user", "content": "a"}], "temperature": 1.5, "seed": 7, "max_tokens": 490,
                      "n": 2, "logit_bias": bias}
            for schema in (whole, without(whole, "uniqueItems")):
                form = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}
                status, _, read = server.call("POST", "/v1/chat/completions", {**fields, "response_format": form})
                if status != 400 or b"uniqueItems" not in read:
                    break
            return schema, status, json.loads(read)

        paths = sorted(glob.glob(os.path.join(FOLDER, "resources", "*.json")))
        refusals, finished, with_one = collections.Counter(), 0, 0
        with concurrent.futures.ThreadPoolExecutor(16) as pool:
            for schema, status, answer in pool.map(ask, paths):
                if status != 200:
                    self.assertEqual(status, 400, answer)
                    refusals[re.sub(r"\S{20,}", "...", answer["error"]["message"].split("\n")[0])] += 1
                    continue
                ended = [one for one in answer["choices"] if one["finish_reason"] == "stop"]
                for one in ended:
                    jsonschema.Draft7Validator(schema).validate(json.loads(one["message"]["content"]))
                finished += len(ended)
                with_one += bool(ended)
        for message, count in refusals.most_common():
            print(f"{count} refused: {message}")
        print(f"{finished} finished answers over {with_one} of {len(paths)} schemas are valid; {sum(refusals.values())} are refused")
        self.assertGreater(with_one, 1000)


if __name__ == "__main__":
    server_test.PLAIT, server_test.FIXTURES = sys.argv[1:3]
    if server_test.missing_packages("jsonschema"):
        print("NOT RUN: there is no package jsonschema")
        sys.exit(0)
    subprocess.run([os.path.join(os.path.dirname(os.path.abspath(__file__)), "get_schemas.sh")], check=True)
    import jsonschema
    unittest.main(argv=sys.argv[:1] + sys.argv[3:])
