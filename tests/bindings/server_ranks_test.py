#!/usr/bin/env python3
"""plait serve over ranks that are processes: the answers of one rank, and what is told when one of them dies.

usage: server_ranks_test.py PLAIT FIXTURES MPIRUN
"""
import concurrent.futures
import json
import os
import signal
import sys
import time
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import server_test  # noqa: E402
from limits import HANG_S, machine_load  # noqa: E402
from server_test import MODEL, PROMPT, Server, frames  # noqa: E402

MPIRUN = None


def process_of_rank(rank, launcher):
    """The process that a launcher has started as this rank."""
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{name}/environ", "rb") as environment, open(f"/proc/{name}/stat", encoding="utf-8") as stat:
                parent = int(stat.read().rpartition(")")[2].split()[1])
                if parent == launcher and f"OMPI_COMM_WORLD_RANK={rank}".encode() in environment.read().split(b"\0"):
                    return int(name)
        except OSError:  # it has ended
            continue
    raise AssertionError(f"no process of rank {rank}")


class RankServer(Server):
    """Its ranks are processes, and those that are left go on when one has died."""

    def __init__(self, case, mesh, ranks, *words):
        super().__init__(case, "--mesh", mesh, *words, launcher=[
            MPIRUN, "--allow-run-as-root", "--oversubscribe", "--mca", "orte_enable_recovery", "1", "-n", str(ranks)])

    def end(self):
        self.process.terminate()  # mpirun ends its processes, too
        self.process.wait(30)
        super().end()


class Ranks(unittest.TestCase):
    def test_they_answer_as_one(self):
        ask = {"max_tokens": 12, "logprobs": 1}
        expected = Server(self).complete(**ask)["choices"]
        for mesh, ranks in (("tensor=2", 2), ("data=2,tensor=2", 4), ("pipeline=2", 2)):
            with self.subTest(mesh):
                server = RankServer(self, mesh, ranks)
                got = server.complete(**ask)["choices"]
                self.assertEqual(got[0]["text"], expected[0]["text"])
                for one, other in zip(got[0]["logprobs"]["token_logprobs"], expected[0]["logprobs"]["token_logprobs"]):
                    self.assertAlmostEqual(one, other, delta=1e-3)
                self.assertEqual("".join(frame["choices"][0]["text"] for frame in frames(server.call(
                    "POST", "/v1/completions", {"model": MODEL, "prompt": PROMPT, "temperature": 0, "stream": True, **ask})[2])),
                    expected[0]["text"])

    def test_a_dead_rank_ends_every_call(self):
        """One that streams, one that waits and later ones: each with an error that names the rank. /health stays."""
        server = RankServer(self, "tensor=2", 2, "--option", "running=32")
        ask = {"model": MODEL, "prompt": PROMPT, "max_tokens": 480, "ignore_eos": True, "n": 32}
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            streamed = pool.submit(server.call, "POST", "/v1/completions", {**ask, "stream": True})
            server.wait_for("plait_requests_running", 32)
            waits = pool.submit(server.call, "POST", "/v1/completions", ask)
            server.wait_for("plait_requests_waiting", 1)
            os.kill(process_of_rank(1, server.process.pid), signal.SIGKILL)
            begin = time.monotonic()
            status, _, read = streamed.result(HANG_S)
            self.assertEqual(status, 200)
            last = [line for line in read.decode().split("\n") if line.startswith("data: {")][-1]
            self.assertIn("rank 1", json.loads(last[6:])["error"]["message"])
            status, _, read = waits.result(HANG_S)
            self.assertIn(status, (500, 503))
            self.assertIn("rank 1", json.loads(read)["error"]["message"])
            self.assertLess(time.monotonic() - begin, 30 * machine_load())
        status, _, read = server.call("POST", "/v1/completions", {**ask, "max_tokens": 2})
        self.assertIn(status, (500, 503))
        self.assertIn("rank 1", json.loads(read)["error"]["message"])
        self.assertEqual(server.call("GET", "/health")[0], 200)
        status, _, read = server.call("GET", "/ready")
        self.assertEqual(status, 503)
        self.assertIn("rank 1", json.loads(read)["error"]["message"])

    def test_a_rank_that_dies_while_nothing_is_asked(self):
        server = RankServer(self, "tensor=2", 2)
        self.assertEqual(server.call("GET", "/ready")[0], 200)
        os.kill(process_of_rank(1, server.process.pid), signal.SIGKILL)
        begin, status = time.monotonic(), 200
        while status == 200 and time.monotonic() - begin < HANG_S:
            status, _, read = server.call("GET", "/ready")
        self.assertEqual(status, 503)
        self.assertIn("rank 1", json.loads(read)["error"]["message"])
        self.assertEqual(server.call("GET", "/health")[0], 200)


if __name__ == "__main__":
    server_test.PLAIT, server_test.FIXTURES, MPIRUN = sys.argv[1:4]
    unittest.main(argv=sys.argv[:1] + sys.argv[4:])
