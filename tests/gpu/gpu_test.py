"""./run gpu: without a GPU one line and status 77, the steps on the emulated driver, what has passed is not run again, and a bundle.

usage: gpu_test.py GPU BUILD
"""
import json
import os
import subprocess
import sys
import tarfile
import tempfile
import unittest

GPU = BUILD = None


class Gpu(unittest.TestCase):
    def gpu(self, *words, program=None, **environment):
        done = subprocess.run([*(program or [sys.executable, GPU, BUILD]), *words], capture_output=True, text=True, timeout=1800,
                              env={**os.environ, **environment}, check=False)
        return done.returncode, done.stdout + done.stderr

    def test_without_a_gpu_it_is_one_line_and_77(self):
        with tempfile.TemporaryDirectory() as out:
            # A driver that has no device, wherever this runs.
            status, said = self.gpu("--out", out, CUDA_VISIBLE_DEVICES="")
            self.assertEqual(status, 77, said)
            self.assertEqual(len(said.splitlines()), 1)
            self.assertIn("there is no GPU", said)
            status, said = self.gpu("--out", out, "everything")
            self.assertEqual(status, 2)
            self.assertIn("no step is called everything", said)

    def test_steps_that_passed_are_not_run_again(self):
        with tempfile.TemporaryDirectory() as out:
            status, said = self.gpu("--emulated", "--out", out, "machine", "speed")
            self.assertEqual(status, 0, said)
            with open(os.path.join(out, "report.json"), encoding="utf-8") as file:
                report = json.load(file)
            self.assertEqual([one["status"] for one in report["steps"].values()], ["passed", "left out"])
            for name in ("report.txt", "report.html"):
                with open(os.path.join(out, name), encoding="utf-8") as file:
                    self.assertIn("cuda:1", file.read())
            status, said = self.gpu("--emulated", "--out", out, "machine")
            self.assertEqual(status, 0)
            self.assertIn("machine: passed before", said)
            status, said = self.gpu("--emulated", "--out", out, "--again", "machine")
            self.assertNotIn("passed before", said)

    def test_ceilings_and_soak(self):
        with tempfile.TemporaryDirectory() as out:
            status, said = self.gpu("--emulated", "--out", out, "ceilings", "soak")
            self.assertEqual(status, 0, said)
            with open(os.path.join(out, "report.json"), encoding="utf-8") as file:
                steps = json.load(file)["steps"]
            self.assertEqual([one["status"] for one in steps.values()], ["passed", "passed"])
            self.assertEqual(steps["ceilings"]["lines"], ["emulated: no timing; 2 devices, 2 ways between them"])
            figures = steps["ceilings"]["figures"]
            self.assertEqual([(one["from"], one["to"], one["access"]) for one in figures["peers"]], [(0, 1, True), (1, 0, True)])
            for one in figures["devices"]:
                rates = [*one["copies"].values(), *one["launches"].values(), *one["tensor_cores_per_s"].values()]
                self.assertEqual(len(rates), 7)
                self.assertTrue(all(rate > 0 for rate in rates), one)
            self.assertIn(" of them cancelled", steps["soak"]["lines"][0])
            self.assertIn(": 0 wrong, 0 left", steps["soak"]["lines"][0])

    def test_a_step_that_fails_is_reported(self):
        with tempfile.TemporaryDirectory() as out:
            status, said = self.gpu("--emulated", "--out", out, "tokens", PLAIT_EMULATE_FAIL="cuLaunchKernelEx:40")
            self.assertEqual(status, 1, said)
            with open(os.path.join(out, "report.txt"), encoding="utf-8") as file:
                self.assertIn("cuLaunchKernelEx", file.read())

    def test_a_bundle_runs_elsewhere(self):
        with tempfile.TemporaryDirectory() as folder:
            bundle = os.path.join(folder, "gpu.tar.gz")
            status, said = self.gpu("--bundle", bundle)
            if "the build lacks bindings/c/plait_cuda.so" in said:
                self.skipTest("there is no plait_cuda.so: kernels/cuda/get_nvcc.sh")
            self.assertEqual(status, 0, said)
            with tarfile.open(bundle) as archive:
                archive.extractall(folder)
            run = os.path.join(folder, "gpu", "run")
            status, said = self.gpu("--emulated", "--out", os.path.join(folder, "report"), "machine", program=[run])
            self.assertEqual(status, 0, said)


if __name__ == "__main__":
    BUILD, GPU = sys.argv.pop(), sys.argv.pop()
    unittest.main()
