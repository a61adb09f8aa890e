#!/usr/bin/env python3
"""plait serve: /openapi.json has what the server takes and answers, and Schemathesis finds no call with another answer.

usage: openapi_test.py PLAIT FIXTURES [--large]

Schemathesis makes calls from the schemas, right ones and wrong ones: none may be a 5xx, have a status, a type or a body that
is not in the file, or be taken although the schema forbids it. What a schema cannot say (a prompt that is too long, two bounds of one
answer) is refused with 400, so that right calls may be, too. It is of the environment of bindings/python/get_python.sh.
"""
import json
import os
import re
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import server_test  # noqa: E402
from limits import HANG_S  # noqa: E402
from server_test import MODEL, Server  # noqa: E402

PROGRAM = os.path.join(os.path.dirname(server_test.ENVIRONMENT), "schemathesis")


class Interface(unittest.TestCase):
    def fuzz(self, server, *words):
        """Where nothing is found the output is not shown. Schemathesis keeps files where it runs."""
        with tempfile.TemporaryDirectory() as folder:
            done = subprocess.run([PROGRAM, "run", server.address + "/openapi.json", "--seed", "1", "--generation-database", "none",
                                   "--exclude-checks", "positive_data_acceptance", "--request-timeout", str(HANG_S), *words],
                                  capture_output=True, text=True, cwd=folder)
        self.assertEqual(done.returncode, 0, done.stdout[-6000:] + done.stderr[-2000:])
        calls = int(re.search(r"(\d+) generated", done.stdout)[1])
        self.assertEqual(server.call("GET", "/ready")[0], 200)
        server.wait_for("plait_requests_running", 0, 60)
        server.wait_for("plait_cache_pages_free", server.metric("plait_cache_pages"))
        return calls

    def test_each_route_is_there(self):
        server = Server(self, "--api-key", "key")
        status, _, read = server.call("GET", "/openapi.json")
        self.assertEqual(status, 200)
        found = json.loads(read)
        self.assertEqual(found["components"]["schemas"]["ModelName"]["enum"], [MODEL])
        with open(os.path.join(server_test.ROOT, "serving", "http", "routes.cpp")) as file:
            routes = re.findall(r'\{"(GET|POST)", "([^"]+)"', file.read())
        own = {(method, path) for method, path in routes if path not in ("/", "/app.js", "/app.css")}
        self.assertEqual({(method.upper(), path) for path, ways in found["paths"].items() for method in ways}, own)
        for path, ways in found["paths"].items():
            for method, way in ways.items():
                path = path.replace("{model}", MODEL)
                status, headers, _ = server.call(method.upper(), path, "{}" if method == "post" else None)
                self.assertEqual(status, 401 if "security" in way else 200, path)
                if path not in ("/v1/models", f"/v1/models/{MODEL}"):
                    status, headers, _ = server.call("DELETE", path)
                    self.assertEqual((status, headers["allow"]), (405, {"get": "GET, HEAD"}.get(method, method.upper())), path)

    def test_schemathesis(self):
        server = Server(self, "--queue", "100000")
        self.assertGreater(self.fuzz(server, "--max-examples", "500" if LARGE else "5", "--phases", "coverage,fuzzing"), 1000)


if __name__ == "__main__":
    LARGE = "--large" in sys.argv
    server_test.PLAIT, server_test.FIXTURES = sys.argv[1:3]
    if not os.path.exists(PROGRAM):
        print("NOT RUN: there is no package schemathesis")
        sys.exit(0)
    unittest.main(argv=sys.argv[:1] + [word for word in sys.argv[3:] if word != "--large"])
