"""Options of the command line that are for the world of processes, and processes that do not come.

usage: world_options_test.py PLAIT FIXTURES MPIRUN
"""
import os
import re
import subprocess
import sys
import time
import unittest

from limits import HANG_S, machine_load

PLAIT = FIXTURES = MPIRUN = None
MODEL = "gemma3-standard23"


class WorldOptions(unittest.TestCase):
    def generate(self, *options, mesh="tensor=2"):
        out = [PLAIT, "generate", os.path.join(FIXTURES, MODEL), "--ids", "323,352", "--max-tokens", "4", "--threads", "1"]
        for option in options:
            out += ["--option", option]
        return out + (["--mesh", mesh] if mesh else [])

    def run_together(self, *programs):
        """The programs as processes of one world: exit status, what they wrote, seconds."""
        words = [MPIRUN, "--allow-run-as-root", "--oversubscribe"]
        for index, program in enumerate(programs):
            words += ([":"] if index else []) + ["-n", "1", *program]
        start = time.monotonic()
        done = subprocess.run(words, capture_output=True, timeout=HANG_S)
        return done.returncode, (done.stdout + done.stderr).decode(), time.monotonic() - start

    def test_they_reach_the_world(self):
        program = self.generate("rank_timeout_ms=1800000", "share_memory=false")
        status, out, _ = self.run_together(program, program)
        self.assertEqual(status, 0, out)
        program = self.generate("mpi_plugin=/nowhere/plait_mpi.so")
        status, out, _ = self.run_together(program, program)
        self.assertNotEqual(status, 0)
        self.assertIn("/nowhere/plait_mpi.so", out)

    def test_a_mesh_that_is_planned_has_the_world_s_ranks(self):
        def tokens(mesh, count):
            program = self.generate(mesh=mesh) + ["--temperature", "0", "--json"]
            status, out, _ = self.run_together(*[program] * count)
            self.assertEqual(status, 0, out)
            return re.search(r'"ids":\[[\d,]+\]', out).group(), out
        chosen, report = tokens("auto", 2)
        self.assertEqual(chosen, tokens("", 1)[0])
        self.assertIn("rank 1: weights", report)

    def test_without_a_world_they_mean_nothing(self):
        done = subprocess.run(self.generate("share_memory=false", mesh=""), capture_output=True, timeout=HANG_S)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn(b"share_memory", done.stderr)

    # What a rank that dies or is stopped before MPI has started looks like to the others.
    def test_a_process_that_does_not_come_is_an_error_in_time(self):
        status, out, seconds = self.run_together(self.generate("rank_timeout_ms=3000"), ["sleep", str(HANG_S)])
        self.assertNotEqual(status, 0)
        self.assertIn("MPI has not started within 3 s", out)
        self.assertLess(seconds, 40 * machine_load())


if __name__ == "__main__":
    PLAIT, FIXTURES, MPIRUN = sys.argv[1:4]
    unittest.main(argv=sys.argv[:1] + sys.argv[4:])
