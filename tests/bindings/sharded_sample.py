"""samples/sharded_generation, on threads and on processes.

usage: sharded_sample.py SAMPLE FIXTURES MPIRUN, where MPIRUN may be empty: there is no MPI
"""
import json
import os
import subprocess
import sys
import unittest

from limits import HANG_S

SAMPLE = FIXTURES = MPIRUN = None


class Sample(unittest.TestCase):
    def call(self, mesh, processes=0, model="gemma3-standard23"):
        start = [MPIRUN, "--allow-run-as-root", "--oversubscribe", "-n", str(processes)] if processes else []
        words = [*start, SAMPLE, os.path.join(FIXTURES, model), mesh, "the river"]
        return subprocess.run(words, capture_output=True, timeout=HANG_S)

    def figures(self, done, ranks):
        """The output; the rest of its text names every rank."""
        self.assertEqual(done.returncode, 0, done.stderr)
        said = done.stderr.decode()
        self.assertRegex(said, r"\d+ tokens, the first after [\d.]+ s, then [\d.]+ a second")
        rows = json.loads(said[said.index("ranks: ") + 7:])
        self.assertEqual([row["rank"] for row in rows], list(range(ranks)))
        self.assertTrue(all(row["weight_bytes"] > 0 and row["cache_bytes"] > 0 for row in rows), rows)
        return done.stdout

    def test_threads(self):
        self.assertGreater(len(self.figures(self.call("tensor=2"), 2)), 3)
        self.figures(self.call("data=2,tensor=2"), 4)

    def test_processes_give_the_bits_of_threads(self):
        if not MPIRUN:
            self.skipTest("there is no MPI")
        for mesh, ranks in (("tensor=2", 2), ("data=2,tensor=2", 4)):
            self.assertEqual(self.figures(self.call(mesh, ranks), ranks), self.figures(self.call(mesh), ranks))

    def test_failures(self):
        for faulty in (self.call("tensor"), self.call("tensor=2", model="none")):
            self.assertEqual(faulty.returncode, 1)
        if MPIRUN:
            self.assertIn(b"start as many processes as the mesh has ranks", self.call("tensor=3", 2).stderr)


if __name__ == "__main__":
    SAMPLE, FIXTURES, MPIRUN = sys.argv[1:4]
    unittest.main(argv=sys.argv[:1] + sys.argv[4:])
